// muster-launcher: see launcher.h.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "common/command_line/version_text.h"
#include "worker/launcher/launcher.h"

namespace {

constexpr char kUsage[] =
    "usage: muster-launcher --worker-user USER [--socket PATH] [--dir DIR]\n"
    "Starts the jobs of muster-worker --launcher PATH as the accounts of their owners. Runs as "
    "root,\n"
    "and accepts requests of USER alone.\n"
    "  --socket PATH  where the worker finds it [default: /run/muster/launcher.sock]\n"
    "  --dir DIR      records, logs, and /tmp of jobs [default: /var/lib/muster-jobs]\n";
constexpr int kUsageError = 2;

bool Parse(int argc, char** argv, muster::launcher::Options* options) {
  const std::map<std::string_view, std::string*> flags = {{"--worker-user", &options->worker_user},
                                                          {"--socket", &options->socket},
                                                          {"--dir", &options->directory}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end()) return false;
    *flag->second = argv[i + 1];
  }
  return argc % 2 == 1 && !options->worker_user.empty() && options->socket.starts_with('/') &&
         options->directory.starts_with('/');
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc == 2 ? argv[1] : "";
  if (word == "--version") {
    std::printf("%s\n", muster::VersionText("muster-launcher").c_str());
    return EXIT_SUCCESS;
  }
  const std::string beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/";
  muster::launcher::Options options{.socket = "/run/muster/launcher.sock",
                                    .directory = "/var/lib/muster-jobs",
                                    .worker_user = {},
                                    .guardian = beside + "muster-guardian",
                                    .files = beside + "muster-worker"};
  if (!Parse(argc, argv, &options)) {
    std::fputs(kUsage, word == "--help" ? stdout : stderr);
    return word == "--help" ? EXIT_SUCCESS : kUsageError;
  }
  const muster::Status status = muster::launcher::Serve(options);
  std::fprintf(stderr, "muster-launcher: %s\n", status.message().c_str());
  return EXIT_FAILURE;
}
