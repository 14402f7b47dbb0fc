// Probes in namespaces, templates and lambdas, of std::string, and libstdc++'s own on exceptions.
#include <sys/sdt.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "fixture.h"

namespace outer {
namespace inner {

template <typename T> FX_NOINLINE void of_type(T value, const char *type)
{
    FX_BARRIER();
    STAP_PROBE2(cxx, templated, value, type);
    HIT("cxx:templated", value, type);
}

class Account {
    std::string name;
    long balance;

public:
    Account(std::string n, long b) : name(std::move(n)), balance(b) {}
    virtual ~Account() = default;
    FX_NOINLINE virtual void change(long by)
    {
        balance += by;
        FX_BARRIER();
        STAP_PROBE3(cxx, member, name.c_str(), balance, this);
        HIT("cxx:member", name.c_str(), balance, static_cast<const void *>(this));
    }
};

} // namespace inner

static FX_NOINLINE void strings(unsigned long round)
{
    std::string small = "small " + std::to_string(round);
    std::string large(100 + round % 50, 'L');
    const char *s = small.c_str(), *l = large.c_str();
    FX_BARRIER();
    STAP_PROBE3(cxx, string, s, l, large.size());
    HIT("cxx:string", s, l, large.size());
}

} // namespace outer

static FX_NOINLINE void thrower(int value)
{
    if (value >= 0) {
        STAP_PROBE1(cxx, throwing, value);
        HIT("cxx:throwing", value);
        throw value;
    }
}

// libstdc++ passes (object, type) to libstdcxx:throw and libstdcxx:catch.
static FX_NOINLINE void exceptions(int value)
{
    try {
        thrower(value);
    } catch (const int &caught) {
        HIT("libstdcxx:throw", static_cast<const void *>(&caught),
            static_cast<const void *>(&typeid(int)));
        HIT("libstdcxx:catch", static_cast<const void *>(&caught),
            static_cast<const void *>(&typeid(int)));
        STAP_PROBE1(cxx, caught, caught);
        HIT("cxx:caught", caught);
    }
}

extern "C" void fire(unsigned long round)
{
    using namespace outer::inner;
    int now = static_cast<int>(round);
    of_type<int>(-1 - now, "int");
    of_type<unsigned char>(static_cast<unsigned char>(255 - now), "unsigned char");
    of_type<short>(static_cast<short>(-300 - now), "short");
    of_type<long long>(INT64_MIN + now, "long long");
    of_type<double>(0.5 + now, "double");
    of_type<bool>(now & 1, "bool");
    Account account("an account \xe2\x82\xac", 100);
    account.change(-200 - now);
    outer::strings(round);
    exceptions(now);
    auto lambda = [now](int more) {
        STAP_PROBE2(cxx, lambda, now, more);
        HIT("cxx:lambda", now, more);
    };
    lambda(now + 7);
}
