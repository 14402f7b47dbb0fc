// Functions and methods of C++ with parameters of every kind. Each prints what it was passed.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "say.h"

#define STRING(item) say_bytes(#item, (item).data(), (item).size())

namespace shop {

enum class Kind : short { Book = -1, Toy = 7 };

struct Price {
    int whole;
    unsigned cents;
};

class Thing {
public:
    Thing(int id, std::string name) : id_(id), name_(std::move(name)) {}
    virtual ~Thing() = default;
    virtual int weigh(int times) const;
    const std::string &name() const { return name_; }

protected:
    int id_;
    std::string name_;
    static int counter_;
};
int Thing::counter_ = 12;

struct Priced {
    Price price{3, 50};
};

class Toy : public Thing, public Priced {
public:
    Toy(int id, std::string name, short age) : Thing(id, std::move(name)), age_(age), sold_(5) {}
    int weigh(int times) const override;
    CALLED void rename(const std::string &name, bool loudly);
    CALLED static long count(long from);
    CALLED bool operator==(const Toy &other) const;

private:
    short age_;
    unsigned sold_ : 3;
};

CALLED int Thing::weigh(int times) const
{
    BEGIN("shop::Thing::weigh");
    INT(times), INT(this->id_), STRING(this->name_);
    RETURN(times * id_);
    END();
    return times * id_;
}

CALLED int Toy::weigh(int times) const
{
    BEGIN("shop::Toy::weigh");
    INT(times), INT(this->id_), STRING(this->name_), INT(this->age_), INT(this->sold_);
    INT(this->price.whole), UNSIGNED(this->price.cents);
    RETURN(-times);
    END();
    return -times;
}

void Toy::rename(const std::string &name, bool loudly)
{
    BEGIN("shop::Toy::rename");
    STRING(name), INT(loudly), STRING(this->name_);
    END();
    name_ = name;
}

long Toy::count(long from)
{
    BEGIN("shop::Toy::count");
    INT(from);
    RETURN(from + counter_);
    END();
    return from + counter_;
}

bool Toy::operator==(const Toy &other) const
{
    BEGIN("shop::Toy::operator==");
    INT(this->age_), INT(other.age_), STRING(other.name_), UNSIGNED(other.price.cents);
    RETURN(0);
    END();
    return false;
}

// Overloads of one name.
CALLED int put(int number)
{
    BEGIN("shop::put(int)");
    INT(number);
    RETURN(number);
    END();
    return number;
}

CALLED int put(const char *text, Kind kind)
{
    BEGIN("shop::put(char const*, shop::Kind)");
    TEXT(text), NAMED(kind, kind == Kind::Toy ? "Toy" : "Book");
    RETURN(-1);
    END();
    return -1;
}

namespace {
CALLED int inner(const Price &price, int &number, Price &&gone)
{
    BEGIN("shop::(anonymous namespace)::inner");
    INT(price.whole), UNSIGNED(price.cents), INT(number), INT(gone.whole);
    RETURN(number);
    END();
    return number;
}
} // namespace

int call_inner()
{
    int number = -12;
    return inner({1, 2}, number, {-3, 4});
}

} // namespace shop

CALLED std::size_t strings(const std::string &little, std::string by_value, std::string *pointer, std::string &&moved)
{
    BEGIN("strings");
    STRING(little), STRING(by_value), STRING(*pointer), STRING(moved);
    RETURN(little.size());
    END();
    return little.size();
}

CALLED unsigned vectors(const std::vector<int> &numbers, std::vector<unsigned char> bytes,
                        const std::vector<shop::Price> *prices, std::vector<short> &none)
{
    BEGIN("vectors");
    say_key("numbers"), printf("[");
    for (std::size_t at = 0; at < numbers.size(); at++)
        printf("%s%d", at ? ", " : "", numbers[at]);
    printf("]");
    say_key("bytes"), printf("[%d, %d]", bytes[0], bytes[1]);
    INT(numbers[1]), INT(bytes[1]), INT((*prices)[1].whole);
    say_key("*prices"), printf("[{\"whole\": %d, \"cents\": %u}, {\"whole\": %d, \"cents\": %u}]", (*prices)[0].whole,
                             (*prices)[0].cents, (*prices)[1].whole, (*prices)[1].cents);
    say_key("(*prices)[1]"), printf("{\"whole\": %d, \"cents\": %u}", (*prices)[1].whole, (*prices)[1].cents);
    say_key("none"), printf("[]");
    RETURN(none.size());
    END();
    return none.size();
}

// Passed in registers, and by a reference that nobody sees.
struct Plain {
    int a;
    long b;
};
struct Counted {
    int a;
    long b;
    Counted(int first, long second) : a(first), b(second) {}
    Counted(const Counted &other) : a(other.a), b(other.b + 1) {}
    ~Counted() { b = 0; }
};

CALLED Plain by_value(Plain plain, Counted counted, int last, std::unique_ptr<Plain> owned)
{
    BEGIN("by_value");
    INT(plain.a), INT(plain.b), INT(counted.a), INT(counted.b), INT(last), INT(owned->a), INT((*owned).b);
    say_key("plain"), printf("{\"a\": %d, \"b\": %ld}", plain.a, plain.b);
    say_key("*owned"), printf("{\"a\": %d, \"b\": %ld}", owned->a, owned->b);
    say_key("return.b"), printf("%ld", counted.b);
    END();
    return {owned->a, counted.b};
}

CALLED long shared(const std::shared_ptr<Plain> &shared, std::weak_ptr<Plain> weak, std::optional<Plain> maybe,
                   const std::optional<long> &number, std::string_view view,
                   const std::vector<std::string> &texts, const std::vector<double> &halves, std::vector<Plain *> &them)
{
    BEGIN("shared");
    INT(shared->a), INT((*shared).b), INT(maybe->b), INT((*maybe).a), INT(*number), STRING(view), STRING(texts[1]);
    say_key("weak->a"), printf("%d", weak.lock()->a);
    say_key("*maybe"), printf("{\"a\": %d, \"b\": %ld}", maybe->a, maybe->b);
    say_key("halves"), printf("[%.17g, %.17g]", halves[0], halves[1]);
    INT(them[0]->b);
    RETURN(shared->b);
    END();
    return shared->b;
}

CALLED Counted made(int a)
{
    BEGIN("made");
    INT(a);
    say_key("return.a"), printf("%d", a);
    END();
    return {a, 2};
}

template <typename T> CALLED T largest(T one, T other)
{
    BEGIN(sizeof(T) == 8 ? "largest<long>" : "largest<short>");
    INT(one), INT(other);
    RETURN(one > other ? one : other);
    END();
    return one > other ? one : other;
}

template <typename T> struct Box {
    T content;
    CALLED T open(int key) const
    {
        BEGIN("Box<unsigned char>::open");
        INT(key), INT(this->content);
        RETURN(content);
        END();
        return content;
    }
};

int main()
{
    shop::Thing thing(1, "thing");
    shop::Toy toy(2, "a name that is too long for the object", -3), other(4, "other", 5);
    shop::Thing &either = toy;
    int total = thing.weigh(2) + either.weigh(3) + shop::Toy::count(-20);
    toy.rename("bear", true);
    total += toy == other;
    total += shop::put(-5) + shop::put("text", shop::Kind::Toy) + shop::put("", shop::Kind::Book) + shop::call_inner();
    std::string little = "small", large = "twenty-four characters, or more", odd("a\0b", 3);
    total += static_cast<int>(strings(little, large, &odd, std::string(100, 'x')));
    std::vector<shop::Price> prices{{1, 2}, {-3, 4}};
    std::vector<short> none;
    total += static_cast<int>(vectors({1, -2, 3}, {255, 254}, &prices, none));
    total += by_value({1, -2}, Counted(-3, 4), -5, std::make_unique<Plain>(Plain{6, 7})).a;
    auto both = std::make_shared<Plain>(Plain{8, -9});
    std::vector<Plain *> them{both.get()};
    total += shared(both, both, Plain{10, -11}, 12, "a view", {"one", "two"}, {1.5, -2.5}, them);
    total += made(-8).a + largest<long>(-1, 1l << 40) + largest<short>(-3, -4);
    total += Box<unsigned char>{200}.open(-1);
    return total == 0;
}
