// The container of a job on this node: which directories its image has, what is mounted in it, and
// whether it can be entered (worker/process/container_root.h).
//
// Blocks (podman, files, a child process), so it runs on the worker's pool. Free functions; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/agent/rank_environment.h"
#include "worker/process/container_root.h"

namespace muster::worker {

// What an image has. kNotFound where the node has none of that name: images are never pulled.
struct ContainerImage {
  std::vector<std::string> layers;       // directories, the topmost first
  std::vector<std::string> environment;  // "NAME=value"
};
// `podman` is the program; empty: there is none.
Result<ContainerImage> FindContainerImage(const std::string& image, const std::string& podman);

// Reads what `podman image inspect` prints.
Result<ContainerImage> ParsePodmanImage(const std::string& text);

// The shared libraries that the dynamic linker names, one a line, and the linker itself.
std::vector<std::string> ParseLoadedLibraries(const std::string& text);

// What is mounted where. `programs` are files of the node that the job's program needs.
std::vector<RootMount> ContainerMounts(const JobSpec& spec, const Prepare& prepare,
                                       const std::string& job_dir,
                                       const std::vector<std::string>& programs);

// Writes the file that ContainerFilePath names, unless an earlier generation has, and enters the
// container once, as a rank will. Fails with the key of the job file that is at fault;
// kDeadlineExceeded if podman does not answer.
Status PrepareContainer(const LaunchContext& context, const JobSpec& spec, const Prepare& prepare,
                        const std::string& job_dir);

}  // namespace muster::worker
