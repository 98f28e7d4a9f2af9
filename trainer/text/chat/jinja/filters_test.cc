// What filters and tests refuse; testdata/snippets.golden.jsonl has what they give.
#include "trainer/text/chat/jinja/filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/chat/jinja/testing/render.h"

namespace muster::jinja {
namespace {

using ::testing::HasSubstr;

TEST(JinjaFiltersTest, RefuseWhatMakesNoSense) {
  const struct {
    const char* source;
    const char* message;
  } cases[] = {
      {"{{ 5|length }}", "a int has no length"},
      {"{{ x|tojson }}", "a Undefined cannot be written as JSON"},
      {"{{ 'a'|trim(1) }}", "trim needs a text as 'chars', not a int"},
      {"{{ 'a'|trim('b', 2) }}", "trim takes 1 arguments at most, not 2"},
      {"{{ 'a'|replace('b') }}", "replace needs 'new'"},
      {"{{ 'a'|replace(old='b', older='c') }}", "replace has no parameter 'older'"},
      {"{{ 'a'|replace('b', old='c') }}", "replace is given 'old' twice"},
      {"{{ [1, 'a']|sort }}", "have no order"},
      {"{{ [1]|items|list }}", "items needs a dict, not a list"},
      {"{{ {}|dictsort(by='size') }}", "dictsort sorts by key or by value"},
      {"{{ [1]|map('nosuch')|list }}", "the filter nosuch is not supported"},
      {"{{ [1]|select('nosuch')|list }}", "the test nosuch is not supported"},
      {"{{ 'a'|indent(100000000) }}", "an indent is too wide"},
      {"{{ [1]|batch(0) }}", "batch needs a number of items above 0"},
      {"{{ '1'|int(base=99) }}", "int needs a base from 2 to 36"},
      {"{{ [1]|map('string') }}", "printing a generator is not supported"},
      {"{{ 1e300|int }}", "an integer does not fit into 64 bits"},
  };
  for (const auto& c : cases) EXPECT_THAT(TextOf(c.source), HasSubstr(c.message)) << c.source;
}

TEST(JinjaFiltersTest, AreFoundByName) {
  EXPECT_NE(FindFilter("trim"), nullptr);
  EXPECT_EQ(FindFilter("nosuch"), nullptr);
  EXPECT_NE(FindTest("defined"), nullptr);
  EXPECT_EQ(FindTest("nosuch"), nullptr);
}

}  // namespace
}  // namespace muster::jinja
