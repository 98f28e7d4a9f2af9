// muster-worker: one per node. See worker/service/server.h.

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <thread>

#include "common/base/cluster_paths.h"
#include "common/base/version.h"
#include "common/telemetry/log.h"
#include "worker/service/server.h"

namespace {

constexpr int kUsageError = 2;

std::string BesideOwnBinary(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

// A node's name is part of paths and of labels.
std::string CheckNodeName(const std::string& name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool ok = !name.empty() && name.front() != '.' && name.size() <= 64 &&
                  std::all_of(name.begin(), name.end(), allowed);
  return ok ? "" : "a node name holds letters, digits, '-', '_' and '.', at most 64 of them";
}

void AddOptions(CLI::App& app, muster::worker::WorkerOptions* options, std::string* log_level) {
  app.add_option("--dir", options->cluster_dir, "the cluster's directory")
      ->required()
      ->envname("MUSTER_DIR");
  app.add_option("--node", options->node, "this node's name, unique in the cluster")
      ->required()
      ->check(CheckNodeName);
  app.add_option("--address", options->address, "where other nodes reach this node's ranks")
      ->capture_default_str();
  app.add_option("--slots", options->slots, "ranks that this node may run at once (default: CPUs)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--endpoint", options->endpoint_path,
                 "file that says where the coordinator listens (default: the one below --dir)");
  app.add_option("--token", options->token_path,
                 "file with the cluster's token (default: the one below --dir)");
  app.add_option("--trainer", options->trainer_path,
                 "path of muster-trainer (default: beside this program)");
  app.add_option("--http-port", options->http_port, "port of /metrics and /healthz; 0: any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--log-level", *log_level, "trace, debug, info, warn or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.set_version_flag("--version", std::string("muster-worker ") + muster::kVersion);
}

void FillDefaults(muster::worker::WorkerOptions* options) {
  options->cluster_dir =
      std::filesystem::absolute(options->cluster_dir).lexically_normal().string();
  const muster::ClusterPaths paths{options->cluster_dir};
  if (options->slots == 0)
    options->slots = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options->endpoint_path.empty()) options->endpoint_path = paths.Endpoint();
  if (options->token_path.empty()) options->token_path = paths.Token();
  if (options->trainer_path.empty()) options->trainer_path = BesideOwnBinary("muster-trainer");
  options->guardian_path = BesideOwnBinary("muster-guardian");
}

int Run(const muster::worker::WorkerOptions& options) {
  auto server = muster::worker::WorkerServer::Start(options);
  if (!server.ok()) {
    muster::Log().error("{}", server.status().message());
    return EXIT_FAILURE;
  }
  const muster::Status outcome = (*server)->Run();
  if (outcome.ok()) return EXIT_SUCCESS;
  muster::Log().error("the coordinator refused this worker for good: {}", outcome.message());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Muster's worker: runs the ranks of jobs on one node for the coordinator"};
  muster::worker::WorkerOptions options;
  std::string log_level = "info";
  AddOptions(app, &options, &log_level);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsageError;
  }
  try {
    // A peer that is gone is an error of the write, not the end of this process.
    ::signal(SIGPIPE, SIG_IGN);
    FillDefaults(&options);
    muster::InitLogging("worker " + options.node, log_level);
    return Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-worker: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
