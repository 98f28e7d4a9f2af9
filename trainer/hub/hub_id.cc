#include "trainer/hub/hub_id.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxRefBytes = 4096;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// What the Hub takes for the name of an organisation or a repository.
bool IsName(std::string_view text) {
  const auto known = [](char c) { return IsWordCharacter(c) || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 96 && std::all_of(text.begin(), text.end(), known) &&
         IsWordCharacter(text.front()) && text.find("--") == std::string_view::npos &&
         text.find("..") == std::string_view::npos;
}

// A branch may have slashes; nothing of it may lead out of refs/.
bool IsRevision(std::string_view text) {
  const auto known = [](char c) {
    return IsWordCharacter(c) || c == '-' || c == '.' || c == '/' || c == '+';
  };
  return !text.empty() && text.size() <= 200 && std::all_of(text.begin(), text.end(), known) &&
         text.front() != '/' && text.back() != '/' && text.find("..") == std::string_view::npos &&
         text.find("//") == std::string_view::npos;
}

std::string Variable(const GetEnv& env, const char* name) {
  const char* const value = env(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Empty: the cache knows no commit of it.
std::string CommitOf(const std::string& repo_dir, const std::string& revision) {
  const Result<std::string> ref = ReadFile(repo_dir + "/refs/" + revision, kMaxRefBytes);
  if (!ref.ok()) return IsCommit(revision) ? revision : std::string();
  std::string commit = *ref;
  commit.erase(std::find_if(commit.begin(), commit.end(), [](char c) { return c <= ' '; }),
               commit.end());
  return IsCommit(commit) ? commit : std::string();
}

}  // namespace

bool IsCommit(std::string_view revision) {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::optional<HubId> ParseHubId(std::string_view text) {
  HubId id;
  const std::size_t at = text.find('@');
  if (at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || !IsName(text.substr(0, slash)) ||
      !IsName(text.substr(slash + 1)) || !IsRevision(id.revision)) {
    return std::nullopt;
  }
  id.repo = text;
  return id;
}

std::string HubHome(const GetEnv& env) {
  if (std::string home = Variable(env, "HF_HOME"); !home.empty()) return home;
  std::string cache = Variable(env, "XDG_CACHE_HOME");
  if (cache.empty()) cache = Variable(env, "HOME") + "/.cache";
  return cache + "/huggingface";
}

std::string HubCacheDir(const GetEnv& env) {
  if (std::string dir = Variable(env, "HF_HUB_CACHE"); !dir.empty()) return dir;
  return HubHome(env) + "/hub";
}

std::string HubRepoDir(const std::string& cache, const std::string& repo) {
  const std::size_t slash = repo.find('/');
  return cache + "/models--" + repo.substr(0, slash) + "--" + repo.substr(slash + 1);
}

Result<std::string> ResolveModel(const std::string& model, const GetEnv& env) {
  if (IsDirectory(model)) return model;
  const std::optional<HubId> id = ParseHubId(model);
  if (!id) {
    return NotFound("there is no directory " + model +
                    " (nor is that a name of the Hugging Face Hub, ORG/NAME or ORG/NAME@REVISION)");
  }
  const std::string cache = HubCacheDir(env);
  const std::string repo_dir = HubRepoDir(cache, id->repo);
  const std::string commit = CommitOf(repo_dir, id->revision);
  const std::string snapshot = repo_dir + "/snapshots/" + commit;
  if (!commit.empty() && IsDirectory(snapshot)) return snapshot;
  return NotFound("there is no directory " + model + ", and the Hugging Face cache " + cache +
                  " does not hold that model; fetch it with: muster-trainer fetch " + model);
}

Result<std::string> ResolveModel(const std::string& model) {
  return ResolveModel(model, [](const char* name) { return std::getenv(name); });
}

}  // namespace muster
