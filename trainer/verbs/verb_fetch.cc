#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "common/base/clock.h"
#include "common/base/switch.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/fetch.h"
#include "trainer/hub/fetch_display.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

Result<FetchOptions> Prepare(const FetchVerbOptions& options) {
  const GetEnv env = [](const char* name) { return std::getenv(name); };
  MUSTER_ASSIGN_OR_RETURN(const bool offline, ReadSwitch("HF_HUB_OFFLINE", env("HF_HUB_OFFLINE")));
  if (offline) {
    return FailedPrecondition("HF_HUB_OFFLINE is set, so nothing is fetched");
  }
  std::optional<HubId> id = ParseHubId(options.model);
  if (!id) {
    return InvalidArgument(options.model + " is no name of the Hub: ORG/NAME or ORG/NAME@REVISION");
  }
  if (!options.revision.empty()) {
    id = ParseHubId(id->repo + "@" + options.revision);
    if (!id) return InvalidArgument("--revision " + options.revision + " is no name of a revision");
  }
  FetchOptions fetch{.id = *std::move(id),
                     .endpoint = options.endpoint.empty() ? HubEndpoint(env) : options.endpoint,
                     .cache = options.cache.empty() ? HubCacheDir(env) : options.cache,
                     .include = options.include,
                     .parallel = options.parallel};
  if (!fetch.endpoint.starts_with("https://") && !fetch.endpoint.starts_with("http://")) {
    return InvalidArgument(fetch.endpoint + " is no address of a Hub: https://HOST");
  }
  while (fetch.endpoint.ends_with('/')) fetch.endpoint.pop_back();
  MUSTER_ASSIGN_OR_RETURN(fetch.token, HubToken(options.token_file, env));
  return fetch;
}

Result<std::string> Fetch(const FetchVerbOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const FetchOptions fetch, Prepare(options));
  const auto now = [] { return SystemClock().Now(); };
  FetchDisplay display(
      ::isatty(STDERR_FILENO) == 1,
      [](const std::string& text) { std::fputs(text.c_str(), stderr); }, now());
  const FetchHooks hooks{
      .on_plan = [&](std::size_t files, std::int64_t bytes) { display.Plan(files, bytes, now()); },
      .on_bytes = [&](std::int64_t bytes) { display.Bytes(bytes, now()); },
      .on_file = [&](const std::string& file) { display.File(file, now()); },
      .on_note = [&](const std::string& note) { display.Note(note); }};
  Result<std::string> snapshot = FetchModel(fetch, hooks);
  display.End();
  return snapshot;
}

}  // namespace

int RunFetch(const FetchVerbOptions& options) {
  const Result<std::string> snapshot = Fetch(options);
  if (snapshot.ok()) {
    std::printf("%s\n", snapshot->c_str());
    return kExitOk;
  }
  std::fprintf(stderr, "muster-trainer fetch: %s\n", snapshot.status().message().c_str());
  const StatusCode code = snapshot.status().code();
  const bool may_pass = code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted;
  return may_pass ? kExitFailure : kExitBadInput;
}

}  // namespace muster
