#include "cli/commands/command_line.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>

namespace muster::verbs {
namespace {

struct Spec {
  std::string names;        // "-f,--follow"
  std::string placeholder;  // "DURATION"; empty: a switch, or a positional
};

Spec Split(const std::string& spec) {
  const std::size_t blank = spec.find(' ');
  return {spec.substr(0, blank), blank == std::string::npos ? "" : spec.substr(blank + 1)};
}

// "down --timeout" has the variable MUSTER_DOWN_TIMEOUT.
std::string VariablePart(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

// help_words.cc leaves a bound out that is as high.
constexpr double kNoLimit = 1e15;

std::string WholeText(double value) { return Fixed(value, 0); }

std::string ShownDefault(const std::string& value) { return value; }
std::string ShownDefault(std::int64_t value) { return value == 0 ? "" : std::to_string(value); }
template <typename Value>
std::string ShownDefault(const std::optional<Value>&) {
  return "";
}

std::string ShownDefault(Duration value) {
  constexpr std::pair<std::int64_t, const char*> kUnits[] = {
      {86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}, {1, "ms"}};
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(value).count();
  for (const auto& [scale, unit] : kUnits)
    if (millis > 0 && millis % scale == 0) return std::to_string(millis / scale) + unit;
  return "";
}

}  // namespace

Flag Flag::Required() {
  option_->required();
  return *this;
}

// CLI11's own check says "Value 65 not in range 1.000000 to 64.000000".
Flag Flag::Range(double low, double high) {
  const std::string bounds = high >= kNoLimit ? WholeText(low) + " or more"
                                              : "from " + WholeText(low) + " to " + WholeText(high);
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
    if (whole && value >= low && value <= high) return "";
    return "expected a number " + bounds + ", got '" + text + "'";
  };
  option_->check(check, "NUMBER in [" + WholeText(low) + " - " + WholeText(high) + "]");
  return *this;
}

Flag Flag::AtLeast(double low) { return Range(low, kNoLimit); }

Flag Flag::OneOf(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Flag Flag::Excludes(Flag other) {
  option_->excludes(other.option_);
  return *this;
}

Flag Flag::Variable(const std::string& name) {
  option_->envname(name);
  return *this;
}

Flag Flags::Finish(CLI::Option* option, const std::string& spec) {
  const std::string placeholder = Split(spec).placeholder;
  const bool repeats = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  if (!placeholder.empty()) option->option_text(placeholder + (repeats ? " ..." : ""));
  if (!option->get_positional() && !prefix_.empty())
    option->envname(prefix_ + VariablePart(option->get_single_name()));
  return Flag(option);
}

Flag Flags::Add(const std::string& spec, std::string& value, const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help)->default_str(ShownDefault(value)),
                spec);
}

Flag Flags::Add(const std::string& spec, bool& value, const std::string& help) {
  return Finish(app_.add_flag(spec, value, help), spec);
}

Flag Flags::Add(const std::string& spec, int& value, const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help)->default_str(ShownDefault(value)),
                spec);
}

Flag Flags::Add(const std::string& spec, std::int64_t& value, const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help)->default_str(ShownDefault(value)),
                spec);
}

Flag Flags::Add(const std::string& spec, std::optional<int>& value, const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help), spec);
}

Flag Flags::Add(const std::string& spec, std::optional<std::int64_t>& value,
                const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help), spec);
}

Flag Flags::Add(const std::string& spec, std::optional<double>& value, const std::string& help) {
  return Finish(app_.add_option(Split(spec).names, value, help), spec);
}

template <typename Value>
Flag Flags::AddDuration(const std::string& spec, Value& value, const std::string& help) {
  const std::string names = Split(spec).names;
  const auto take = [&value, names, verb = &app_](const std::string& text) {
    // The parser reads the variables of all verbs.
    if (!verb->parsed()) return;
    const Result<Duration> parsed = ParseDuration(text);
    if (!parsed.ok()) throw CLI::ValidationError(names, parsed.status().message());
    value = *parsed;
  };
  return Finish(
      app_.add_option_function<std::string>(names, take, help)->default_str(ShownDefault(value)),
      spec);
}

Flag Flags::Add(const std::string& spec, Duration& value, const std::string& help) {
  return AddDuration(spec, value, help);
}

Flag Flags::Add(const std::string& spec, std::optional<Duration>& value, const std::string& help) {
  return AddDuration(spec, value, help);
}

Flag Flags::Add(const std::string& spec, std::vector<std::string>& value, const std::string& help) {
  CLI::Option* option = app_.add_option(Split(spec).names, value, help);
  if (!option->get_positional())
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return Finish(option, spec);
}

Flag Flags::AddYesNo(const std::string& name, std::optional<bool>& value, const std::string& help) {
  const auto set = [&value](std::int64_t count) { value = count > 0; };
  CLI::Option* option =
      app_.add_flag_function("--" + name + ",!--no-" + name, std::function(set), help);
  option->envname(prefix_ + VariablePart(name));
  return Flag(option);
}

Flag Flags::AddOutput(const std::string& names) {
  std::vector<std::string> formats(std::begin(kOutputFormats), std::end(kOutputFormats));
  return Add(names + " FORMAT", global().output,
             "Output format: table, wide, json, jsonl, yaml, or name")
      .OneOf(formats)
      .Variable("MUSTER_OUTPUT");
}

void Flags::PassOnUnknown() { app_.fallthrough(false)->allow_extras(); }

void Flags::PassOnRest() { app_.fallthrough(false)->prefix_command(); }

void Flags::SetFooter(const std::string& text) { app_.footer(text); }

void Flags::HideVerb() { app_.group(""); }

Flags CommandLine::Add(const std::string& name, const std::string& summary, Command run) {
  CLI::App* verb = app_.add_subcommand(name, summary);
  verb->fallthrough();
  verb->callback([verb, parsed = &parsed_, run = std::move(run)] {
    parsed->command = run;
    const std::vector<std::string> words = verb->remaining();
    parsed->passed_on.insert(parsed->passed_on.begin(), words.begin(), words.end());
  });
  return Flags(*verb, parsed_, prefix_ + VariablePart(name) + "_");
}

CommandLine CommandLine::Group(const std::string& name, const std::string& summary) {
  CLI::App* group = app_.add_subcommand(name, summary);
  group->fallthrough();
  group->require_subcommand(1);
  return CommandLine(*group, parsed_, prefix_ + VariablePart(name) + "_");
}

Result<Duration> ParseDuration(const std::string& text) {
  double amount = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), amount);
  const std::string_view unit(end.ptr,
                              static_cast<std::size_t>(text.data() + text.size() - end.ptr));
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "ms"              ? 0.001
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                       : unit == "d"               ? 24 * 3600
                                                   : -1;
  if (end.ec != std::errc() || scale < 0 || !(amount >= 0) || amount * scale > 1e9)
    return InvalidArgument("invalid duration '" + text + "'; expected a value such as 90s, 10m, " +
                           "2h, or 30d");
  return FromSeconds(amount * scale);
}

}  // namespace muster::verbs
