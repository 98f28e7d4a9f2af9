#include "common/command_line/help_words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster {
namespace {

constexpr std::string_view kRangeBegins = " in [";
constexpr std::string_view kUnitMark = "[UNIT";
// Larger limits are those of the C++ type.
constexpr double kNoLimit = 1e15;

// CLI11's description of a value: its type, then that of each check, between colons.
struct ValueText {
  std::string type;
  std::vector<std::string> checks;

  bool has_unit() const {
    return std::any_of(checks.begin(), checks.end(), [](const std::string& check) {
      return check.find(kUnitMark) != std::string::npos;
    });
  }
};

ValueText ReadValue(const CLI::Option& option) {
  ValueText value;
  std::string text = option.get_type_name();
  std::size_t end = std::min(text.find(':'), text.size());
  value.type = text.substr(0, end);
  while (end < text.size()) {
    const std::size_t from = end + 1;
    end = std::min(text.find(':', from), text.size());
    value.checks.push_back(text.substr(from, end - from));
  }
  return value;
}

std::string NumberText(double number, bool is_time) {
  std::string unit;
  if (is_time) {
    unit = "s";
    if (number >= 3600 && std::fmod(number, 3600) == 0) {
      number /= 3600;
      unit = "h";
    } else if (number >= 60 && std::fmod(number, 60) == 0) {
      number /= 60;
      unit = "m";
    }
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.12g", number);
  return text.data() + unit;
}

// "INT in [1 - 64]" is "1 to 64".
std::string RangeText(const std::string& check, bool is_time) {
  const std::size_t begin = check.find(kRangeBegins);
  const std::size_t middle = check.find(" - ", begin);
  if (begin == std::string::npos || middle == std::string::npos) return check;
  const double least = std::strtod(check.c_str() + begin + kRangeBegins.size(), nullptr);
  const double most = std::strtod(check.c_str() + middle + 3, nullptr);
  if (most >= kNoLimit) return NumberText(least, is_time) + " or more";
  return NumberText(least, is_time) + " to " + NumberText(most, is_time);
}

std::vector<std::string> Members(const std::string& set) {
  std::vector<std::string> members;
  for (std::size_t from = 1; from < set.size();) {
    const std::size_t end = set.find_first_of(",}", from);
    members.push_back(set.substr(from, end - from));
    from = end == std::string::npos ? set.size() : end + 1;
  }
  return members;
}

// "{a,b}" is "one of: a, b"; empty where `description` names them all.
std::string SetText(const std::string& set, const std::string& description) {
  std::string text;
  bool all_named = true;
  for (const std::string& member : Members(set)) {
    if (member.empty()) continue;
    text += (text.empty() ? "one of: " : ", ") + member;
    all_named = all_named && description.find(member) != std::string::npos;
  }
  return all_named ? "" : text;
}

std::string CheckText(const std::string& check, bool is_time, const std::string& description) {
  if (check == "POSITIVE") return "above 0";
  if (check == "NONNEGATIVE") return "0 or more";
  if (check.starts_with("{")) return SetText(check, description);
  if (check.find(kUnitMark) != std::string::npos) return "";  // the placeholder names it
  return RangeText(check, is_time);
}

std::string Placeholder(const ValueText& value) {
  if (value.has_unit()) return "TIME";
  if (value.type == "INT" || value.type == "UINT") return "N";
  if (value.type == "FLOAT") return "NUMBER";
  return value.type;
}

void Append(std::string* list, const std::string& text) {
  if (!text.empty()) *list += (list->empty() ? "" : "; ") + text;
}

// Sorted by name; CLI11 sorts by address.
std::string Names(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;
  for (const CLI::Option* option : options) names.insert(option->get_name());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

class Words : public CLI::Formatter {
 public:
  // A flag with an optional value, "--grace{25}", is "--grace[=25]".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::size_t open = name.find('{');
    if (open == std::string::npos || name.back() != '}') return name;
    return name.substr(0, open) + "[=" + name.substr(open + 1, name.size() - open - 2) + "]";
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return " " + option->get_option_text();
    if (option->get_type_size() == 0) return "";
    const bool repeats = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    // A positional is its own placeholder.
    const std::string placeholder =
        option->get_positional() ? "" : " " + Placeholder(ReadValue(*option));
    return placeholder + (repeats ? " ..." : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string description = option->get_description();
    const ValueText value = ReadValue(*option);
    std::string limits;
    if (option->get_type_size() != 0) {
      for (const std::string& check : value.checks)
        Append(&limits, CheckText(check, value.has_unit(), description));
      if (option->get_required()) Append(&limits, "required");
    }
    if (!option->get_needs().empty()) Append(&limits, "needs " + Names(option->get_needs()));
    if (!option->get_excludes().empty())
      Append(&limits, "not with " + Names(option->get_excludes()));
    if (!option->get_envname().empty()) Append(&limits, "$" + option->get_envname());
    if (!option->get_default_str().empty())
      description += " [default: " + option->get_default_str() + (value.has_unit() ? "s]" : "]");
    if (limits.empty()) return description;
    return description + (description.empty() ? "(" : " (") + limits + ")";
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = CLI::Formatter::make_footer(app);
    const std::string common = CommonOptions(app);
    if (common.empty()) return footer;
    return common + (footer.empty() ? "" : "\n" + footer);
  }

 private:
  // The program's own options, which every command accepts.
  static std::string CommonOptions(const CLI::App* app) {
    if (app->get_parent() == nullptr) return "";
    const CLI::App* root = app;
    std::string command;  // with the groups that it stands in
    for (; root->get_parent() != nullptr; root = root->get_parent())
      command = root->get_name() + " " + command;
    std::string names;
    for (const CLI::Option* option : root->get_options()) {
      if (!option->nonpositional() || option->get_group().empty()) continue;
      if (option == root->get_help_ptr() || option == root->get_version_ptr()) continue;
      // Listed above, as the command's own.
      if (app->get_option_no_throw(option->get_name()) != nullptr) continue;
      names += (names.empty() ? "" : ", ") + option->get_name();
    }
    if (names.empty()) return "";
    const std::string program = root->get_name();
    // A command that passes unknown words on does not look for them among the program's options.
    const std::string where =
        app->get_fallthrough()
            ? ""
            : "; place them before the command: " + program + " OPTIONS " + command + "...";
    return "Global options (" + program + " --help): " + names + where + "\n";
  }
};

}  // namespace

std::vector<std::string> AcceptedWords(const CLI::Option& option) {
  for (const std::string& check : ReadValue(option).checks)
    if (check.starts_with("{")) return Members(check);
  return {};
}

void WriteHelpInWords(CLI::App& app) {
  const auto words = std::make_shared<Words>();
  words->column_width(34);
  app.formatter(words);
}

}  // namespace muster
