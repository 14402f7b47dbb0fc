/* Opens libplugin.so when first asked to fire, or on the line "open"; "close" closes it again. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

static void *plugin;
static void (*plugin_fire)(unsigned long);

static void open_plugin(void)
{
    const char *path = fx_sibling("libplugin.so");
    if (plugin)
        return;
    plugin = dlopen(path, RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "dlopened: %s\n", dlerror());
        fx_die("dlopen");
    }
    plugin_fire = (void (*)(unsigned long))dlsym(plugin, "plugin_fire");
    if (!plugin_fire)
        fx_die("dlsym");
}

bool fixture_command(const char *line)
{
    if (strcmp(line, "open") == 0) {
        open_plugin();
        fx_line("opened");
        return true;
    }
    if (strcmp(line, "close") == 0) {
        if (plugin)
            dlclose(plugin);
        plugin = NULL;
        fx_line("closed");
        return true;
    }
    return false;
}

void fire(unsigned long round)
{
    FIRE(dlopened, before, (int)round, plugin != NULL);
    open_plugin();
    plugin_fire(round);
}
