// muster-guardian: see guardian.h. Started by muster-worker, one per job and node.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/open_files.h"
#include "common/command_line/version_text.h"
#include "worker/guardian/guardian.h"
#include "worker/guardian/log_line.h"
#include "worker/process/container_entry.h"

namespace {

constexpr char kUsage[] =
    "usage: muster-guardian --dir DIR/nodes/NAME/jobs/JOB --job JOB [--worker-fd N]\n"
    "                       [--devices DIR] [--worker-uid N]\n"
    "Owns the ranks of one job on one node. muster-worker starts it, or muster-launcher for it.\n";
constexpr int kUsageError = 2;
constexpr int kExitNotStarted = 127;

bool Parse(int argc, char** argv, muster::GuardianOptions* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--dir")
      options->directory = argv[i + 1];
    else if (flag == "--job")
      options->job = argv[i + 1];
    else if (flag == "--worker-fd")
      options->worker_fd = std::atoi(argv[i + 1]);
    else if (flag == "--devices")
      options->devices = argv[i + 1];
    else if (flag == "--worker-uid")
      options->worker_uid = std::atoi(argv[i + 1]);
    else
      return false;
  }
  return argc % 2 == 1 && !options->directory.empty() && !options->job.empty();
}

// As a rank's process: nothing of a guardian.
int EnterContainer(std::string_view word, const std::string& file,
                   const std::vector<std::string>& words) {
  const muster::Status status = word == muster::kCheckContainer
                                    ? muster::CheckContainer(file, words)
                                    : muster::RunInContainer(file, words);
  if (status.ok()) return 0;
  std::fprintf(stderr, "muster: %s\n", status.message().c_str());
  return kExitNotStarted;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 3 ? argv[1] : "";
  if (word == muster::kRunInContainer || word == muster::kCheckContainer)
    return EnterContainer(word, argv[2], {argv + 3, argv + argc});
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("%s\n", muster::VersionText("muster-guardian").c_str());
    return 0;
  }
  muster::GuardianOptions options;
  if (!Parse(argc, argv, &options)) {
    std::fputs(kUsage, stderr);
    return kUsageError;
  }
  muster::RaiseOpenFilesLimit();
  auto guardian = muster::Guardian::Start(options);
  if (!guardian.ok()) {
    muster::LogLine(guardian.status().ToString());
    return EXIT_FAILURE;
  }
  return (*guardian)->Run();
}
