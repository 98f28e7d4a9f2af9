// Filters that give texts (filters.h).
#include <algorithm>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/filter_table.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/print.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

Value DoTrim(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "trim", {"chars"});
  StripOptions options{.given = given.HasValue(0)};
  if (options.given) options.characters = given.TextAt(0).bytes();
  return Strip(ToText(input, budget), options);
}

template <Text (*kChange)(const Text&)>
Value DoChange(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "a filter that changes case", {});
  return kChange(ToText(input, budget));
}

Value DoReplace(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "replace", {"old", "new", "count"}, 2);
  return Replace(ToText(input, budget), ToText(given[0], budget), ToText(given[1], budget),
                 given.IntegerOr(2, -1));
}

Value DoString(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "string", {});
  return ToText(input, budget);
}

Value DoSafe(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "safe", {});
  Text text = ToText(input, budget);
  text.safe = true;
  return text;
}

Value DoEscape(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "escape", {});
  return EscapeHtml(ToText(input, budget));
}

Text Spaces(std::int64_t count) {
  if (count > static_cast<std::int64_t>(kMaxTextBytes)) Fail("an indent is too wide");
  return Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' '));
}

Value DoIndent(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "indent", {"width", "first", "blank"});
  RequireDefined(input);
  if (!input.is_text()) Fail("indent needs a text, not a " + input.TypeName());
  const bool by_text = given.HasValue(0) && given[0].is_text();
  const Text indent = by_text ? given.TextAt(0) : Spaces(given.IntegerOr(0, 4));
  // As Jinja2 does it: a line break at the end shows as one more, empty line.
  Text text = input.text();
  text.Append("\n");
  Text out;
  bool first = true;
  for (const Interval& line : SplitLines(text.bytes())) {
    if (!first) out.Append("\n");
    const bool indents = first ? given.IsTrue(1) : given.IsTrue(2) || line.end > line.begin;
    if (indents) out.Append(indent);
    out.AppendPart(text, line.begin, line.end);
    first = false;
  }
  return out;
}

std::string SeparatorAt(const Value& pair, std::size_t i) {
  const auto& items = pair.list().items;
  if (items.size() != 2 || !items[i].is_text()) Fail("tojson needs two texts as separators");
  return items[i].bytes();
}

Value DoToJson(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "tojson",
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = given.IsTrue(0), .sort_keys = given.IsTrue(3)};
  if (given.HasValue(1)) {
    style.indent =
        given[1].is_text() ? given[1].bytes() : std::string(Spaces(given.IntegerAt(1)).bytes());
    style.item_separator = ",";
  }
  if (given.HasValue(2)) {
    if (!given[2].is_list()) Fail("tojson needs two texts as separators");
    style.item_separator = SeparatorAt(given[2], 0);
    style.key_separator = SeparatorAt(given[2], 1);
  }
  return ToJson(input, style, budget);
}

Value DoJoin(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "join", {"d", "attribute"});
  const Text between = given.Has(0) ? ToText(given[0], budget) : Text();
  Text joined;
  bool first = true;
  for (const Value& item : Items(input, budget)) {
    if (!first) joined.Append(between);
    joined.Append(ToText(given.HasValue(1) ? ItemByPath(item, given[1]) : item, budget));
    first = false;
  }
  return joined;
}

constexpr NamedFilter kFilters[] = {
    {"trim", DoTrim},
    {"upper", DoChange<Upper>},
    {"lower", DoChange<Lower>},
    {"capitalize", DoChange<Capitalize>},
    {"title", DoChange<TitleByWords>},
    {"replace", DoReplace},
    {"string", DoString},
    {"safe", DoSafe},
    {"escape", DoEscape},
    {"e", DoEscape},
    {"indent", DoIndent},
    {"tojson", DoToJson},
    {"join", DoJoin},
};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kFilters; }

}  // namespace muster::jinja
