#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text;
static size_t used, room;

static void collect(void *ctx, const char *fmt, va_list args)
{
	va_list again;
	int n;

	va_copy(again, args);
	n = vsnprintf(text + used, room - used, fmt, args);
	if (used + n + 1 > room) {
		room = (used + n + 1) * 2;
		text = realloc(text, room);
		vsnprintf(text + used, room - used, fmt, again);
	}
	va_end(again);
	used += n;
}

static int quiet(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return 0;
}

/* One request per line: ID compact skip_names emit_zeroes level indent size memory.
 * The indentation and the memory are hexadecimal. The data are the first bytes of the memory, all of it if the size is -1.
 * Answer: result and length of the text in one line, then the text and a line end. */
int main(int argc, char **argv)
{
	static char line[1 << 20], indent_hex[128], hex[1 << 20];
	struct btf *btf;
	unsigned id, level;
	int compact, skip, zeroes;

	setvbuf(stdout, NULL, _IOLBF, 0);
	libbpf_set_print(quiet);
	btf = argc > 1 ? btf__parse(argv[1], NULL) : NULL;
	if (!btf) {
		fprintf(stderr, "cannot read the BTF: %s\n", strerror(errno));
		return 1;
	}
	room = 1 << 16;
	text = malloc(room);
	while (fgets(line, sizeof(line), stdin)) {
		LIBBPF_OPTS(btf_dump_type_data_opts, opts);
		struct btf_dump *dump;
		char indent[64] = "", *data;
		size_t size, i;
		int result, given;

		hex[0] = 0;
		if (sscanf(line, "%u %d %d %d %u %127s %d %1048575s", &id, &compact, &skip, &zeroes,
			   &level, indent_hex, &given, hex) < 7)
			return 2;
		for (i = 0; indent_hex[0] != '-' && i < strlen(indent_hex) / 2; i++)
			sscanf(indent_hex + 2 * i, "%2hhx", (unsigned char *)indent + i);
		size = strlen(hex) / 2;
		data = calloc(1, size + 65536); /* zeroes behind the memory, and plenty of them */
		for (i = 0; i < size; i++)
			sscanf(hex + 2 * i, "%2hhx", (unsigned char *)data + i);
		if (given >= 0 && given < size)
			size = given;
		opts.compact = compact;
		opts.skip_names = skip;
		opts.emit_zeroes = zeroes;
		opts.indent_level = level;
		opts.indent_str = indent;
		used = 0;
		text[0] = 0;
		dump = btf_dump__new(btf, collect, NULL, NULL);
		result = btf_dump__dump_type_data(dump, id, data, size, &opts);
		btf_dump__free(dump);
		printf("%d %zu\n%s\n", result, used, text);
		fflush(stdout);
		free(data);
	}
	return 0;
}
