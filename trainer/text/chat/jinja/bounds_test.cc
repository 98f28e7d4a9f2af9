// Templates that want too much, and such as are no templates at all: none crashes or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trainer/text/chat/jinja/parser.h"
#include "trainer/text/chat/jinja/testing/render.h"

namespace muster::jinja {
namespace {

using ::testing::HasSubstr;

constexpr RenderLimits kFewSteps = {.steps = 20'000};
constexpr char kVariables[] =
    R"({"messages": [{"role": "user", "content": "Hi"}], "n": 3, "s": "text", "l": [1, [2]]})";

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(JinjaBoundsTest, StepsRunOut) {
  const std::string nested =
      Repeated("{% for i in range(1000) %}", 4) + "{{ i }}" + Repeated("{% endfor %}", 4);
  const auto text = Rendered(nested, {}, kFewSteps);
  EXPECT_THAT(text.status().message(), HasSubstr("too many steps"));
}

TEST(JinjaBoundsTest, TextsAndListsCannotGrowWithoutEnd) {
  EXPECT_THAT(TextOf("{{ 'a' * 99999999999 }}"), HasSubstr("repeated too often"));
  EXPECT_THAT(TextOf("{{ [1] * 99999999999 }}"), HasSubstr("repeated too often"));
  EXPECT_THAT(TextOf("{{ range(99999999) }}"), HasSubstr("more than 100000 numbers"));
  const std::string doubling =
      "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  EXPECT_THAT(TextOf(doubling), HasSubstr("t.jinja:1: "));
  const std::string lists =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}";
  EXPECT_THAT(TextOf(lists), HasSubstr("t.jinja:1: "));
}

TEST(JinjaBoundsTest, SharedPartsOfAValueAreNotComparedForEver) {
  const std::string build =
      "{% set ns = namespace(a=[], b=[]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  for (const char* use :
       {"{{ ns.a == ns.b }}", "{{ ns.a|tojson }}", "{{ ns.a }}", "{{ ns.a < ns.b }}"}) {
    const auto text = Rendered(build + use, {}, kFewSteps);
    EXPECT_FALSE(text.ok()) << use;
  }
}

TEST(JinjaBoundsTest, NothingNestsTooDeeply) {
  const struct {
    std::string source;
    const char* message;
  } cases[] = {
      {"{{ " + Repeated("(", 5000) + "1" + Repeated(")", 5000) + " }}", "nests too deeply"},
      {"{{ " + Repeated("[", 5000) + Repeated("]", 5000) + " }}", "nests too deeply"},
      {"{{ " + Repeated("-", 5000) + "1 }}", "nests too deeply"},
      {"{{ " + Repeated("not ", 5000) + "1 }}", "nests too deeply"},
      {"{{ 1" + Repeated(" + 1", 5000) + " }}", "nests too deeply"},
      {"{{ x" + Repeated(".y", 5000) + " }}", "nests too deeply"},
      {"{{ x" + Repeated("|trim", 5000) + " }}", "nests too deeply"},
      {Repeated("{% if 1 %}", 5000), "nests too deeply"},
      {"{% set " + Repeated("(", 5000) + "a" + Repeated(")", 5000) + " = 1 %}", "nests too deeply"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests too deeply"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nest deeper than 100 levels"},
  };
  for (const auto& c : cases) EXPECT_THAT(TextOf(c.source), HasSubstr(c.message));
}

TEST(JinjaBoundsTest, DataMayNotNestTooDeeplyEither) {
  const auto deep = nlohmann::ordered_json::parse(Repeated("[", 300) + Repeated("]", 300));
  EXPECT_ANY_THROW(FromJson(deep));
}

TEST(JinjaBoundsTest, BrokenTemplatesAreRefused) {
  EXPECT_THAT(TextOf("\xff"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(TextOf(std::string(kMaxTemplateBytes + 1, 'x')), HasSubstr("is larger than 1 MiB"));
}

// Parses and renders; how it ends is no matter.
void Try(const std::string& source) {
  const auto text = Rendered(source, InputOf(kVariables), kFewSteps);
  if (!text.ok()) {
    EXPECT_FALSE(text.status().message().empty());
  }
}

TEST(JinjaBoundsTest, RandomBytesNeverCrash) {
  std::mt19937_64 random(20240726);
  for (int i = 0; i < 3000; ++i) {
    std::string source;
    const std::size_t length = random() % 200;
    for (std::size_t j = 0; j < length; ++j) source += static_cast<char>(random() % 128);
    Try(source);
    Try("{{" + source + "}}");
    source += static_cast<char>(random() % 256);
    Try(source);
  }
}

TEST(JinjaBoundsTest, RandomTokensNeverCrash) {
  const char* const pieces[] = {
      "{{ ",      " }}",        "{% ",        " %}",
      "{%- ",     " -%}",       "for ",       "i ",
      "in ",      "if ",        "else ",      "endfor",
      "endif",    "set ",       "= ",         "macro ",
      "endmacro", "m(",         ")",          "(",
      "[",        "]",          "{",          "}",
      "|",        "length",     "tojson",     "is ",
      "defined",  "not ",       "and ",       "or ",
      "+ ",       "- ",         "* ",         "~ ",
      "// ",      "% ",         "** ",        "< ",
      "== ",      "'a'",        "1",          "2.5",
      "messages", ".role",      "[0]",        "[::-1]",
      ":",        ",",          "s",          "l",
      "n",        "loop.index", "ns",         "namespace(",
      "range(",   "x",          "break",      "text\n",
      "{#",       "#}",         "filter ",    "call ",
      "endcall",  "endset",     "generation", "endgeneration",
      "join",     "map(",       "sort",       "none",
  };
  std::mt19937_64 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string source;
    const std::size_t count = 1 + random() % 40;
    for (std::size_t j = 0; j < count; ++j) source += pieces[random() % std::size(pieces)];
    Try(source);
    Try("{{ " + source + " }}");
  }
}

TEST(JinjaBoundsTest, SoundTemplatesWithPlantedErrorsNeverCrash) {
  const std::string sound =
      "{% set ns = namespace(n=0) %}{% macro m(a, b=2) %}{{ a ~ b }}{% endmacro %}"
      "{% for message in messages if message.role != 'x' %}{{ loop.index }}{{ message.content|trim "
      "}}"
      "{% set ns.n = ns.n + 1 %}{{ m(message.role) }}{% else %}none{% endfor %}"
      "{{ l[::-1] }}{{ {'a': [1, 2.5, none]}|tojson(indent=2) }}{{ s[1:3].upper() }}";
  std::mt19937_64 random(11);
  for (int i = 0; i < 5000; ++i) {
    std::string source = sound;
    for (std::size_t j = 1 + random() % 4; j > 0; --j) {
      const std::size_t at = random() % source.size();
      const std::size_t kind = random() % 3;
      if (kind == 0) source.erase(at, 1 + random() % 5);
      if (kind == 1) source[at] = static_cast<char>(32 + random() % 95);
      if (kind == 2) source.insert(at, source.substr(random() % source.size(), random() % 20));
      if (source.empty()) source = "x";
    }
    Try(source);
  }
}

}  // namespace
}  // namespace muster::jinja
