#include "cli/upgrade/build.h"

#include <unistd.h>

#include <filesystem>

#include "cli/base/processes.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/version.h"
#include "common/process/run_child.h"

namespace muster::upgrade {
namespace {

namespace fs = std::filesystem;

constexpr Duration kAnswerWithin = std::chrono::seconds(20);
constexpr std::size_t kMaxAnswer = 64 << 10;

template <typename Rows>
Build FromRows(const std::string& version, const Rows& rows) {
  Build build{.version = version};
  for (const v1::VersionRange& row : rows) build.table[row.key()] = {row.min(), row.max()};
  return build;
}

Result<std::string> AskProgram(const std::string& path) {
  // In no cluster's name: only the program itself is asked.
  RunChildOptions options{
      .spawn = {.argv = {path, "--dir", "/nonexistent", "version", "-o", "json"},
                .environment = OwnEnvironment()},
      .max_output = kMaxAnswer,
      .errors_apart = true,
      .limit = kAnswerWithin};
  MUSTER_ASSIGN_OR_RETURN(const ChildOutcome outcome, RunChild(options));
  if (outcome.ok()) return outcome.output;
  return FailedPrecondition(path + " version -o json: " + outcome.Describe() + " " +
                            outcome.errors);
}

Result<std::string> ProgramIn(const std::string& directory) {
  for (const char* name : {"muster", "bin/muster"}) {
    std::string path = directory + "/" + name;
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path;
  }
  return NotFound(directory + " holds neither muster nor bin/muster");
}

}  // namespace

Build OwnBuild() {
  Build build{.version = kVersion};
  for (const VersionRow& row : kVersionTable) build.table[std::string(row.key)] = row.range;
  return build;
}

Build BuildOf(const v1::VersionResponse& response) {
  return FromRows(response.version(), response.versions());
}

Build BuildOf(const v1::Node& node) { return FromRows(node.version(), node.versions()); }

Json TableJson(const Build& build) {
  if (build.table.empty()) return nullptr;
  Json json = Json::object();
  for (const auto& [key, range] : build.table) json[key] = {{"min", range.min}, {"max", range.max}};
  return json;
}

Result<Build> ParseBuild(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Build build{.version = json.at("version").get<std::string>()};
    if (!json.contains("versions"))
      return FailedPrecondition("version " + build.version +
                                " has no table of versions: it is older than 0.2.0; follow the "
                                "changelog of 0.2.0");
    for (const auto& [key, range] : json.at("versions").items())
      build.table[key] = {IntegerOf<int>(range.at("min")), IntegerOf<int>(range.at("max"))};
    return build;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("it is not what `muster version -o json` prints: ") +
                           error.what());
  }
}

Result<Build> ReadBuild(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound(path + " is not there");
  std::string program = fs::absolute(path).string();
  if (fs::is_directory(path, error)) {
    MUSTER_ASSIGN_OR_RETURN(program, ProgramIn(program));
  }
  const bool runs = ::access(program.c_str(), X_OK) == 0;
  const Result<std::string> text = runs ? AskProgram(program) : ReadFile(program);
  if (!text.ok()) return text.status();
  Result<Build> build = ParseBuild(*text);
  return build.ok() ? build : Result<Build>(build.status().WithContext(program));
}

}  // namespace muster::upgrade
