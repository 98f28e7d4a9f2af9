#include "trainer/hub/hub_id.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxRefBytes = 4096;

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
