// ContainerRoot: the root directory in which a rank runs instead of its node's own, and how a
// process enters it.
//
// The worker describes it in a file (worker/agent/container.h). muster-guardian, executed as the
// rank's process, reads the file, enters the root and becomes the rank's program
// (container_entry.h): process, session, parent, descriptors and the end are those of any rank.
//
// The root is an overlay of the image's layers in a mount namespace of the process's own, which is
// also in a user namespace where the user may not mount. What the process and its descendants write
// outside of `mounts` lies in memory. The kernel removes all of it when the last of them has ended.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct RootMount {
  std::string source;  // of the node: a file, or a directory with all that is mounted below it
  std::string target;  // in the root; made where it is missing
  bool read_only = false;
  bool optional = false;  // left out where the node has no such source

  friend bool operator==(const RootMount&, const RootMount&) = default;
};

struct ContainerRoot {
  std::vector<std::string> layers;       // directories, the topmost first
  std::vector<RootMount> mounts;         // in this order
  std::vector<std::string> directories;  // made where they are missing
  std::vector<std::string> environment;  // "NAME=value", for variables that the process lacks
  std::string library_path;              // goes before LD_LIBRARY_PATH; empty: nothing
  std::string working_directory;
  std::string scratch;  // an empty directory of the node, on which the process puts it together

  friend bool operator==(const ContainerRoot&, const ContainerRoot&) = default;
};

std::string EncodeContainerRoot(const ContainerRoot& root);
Result<ContainerRoot> DecodeContainerRoot(std::string_view text);

// Moves the calling process, which has one thread, into the root, at its "/". After a failure the
// process is of no further use.
Status EnterContainer(const ContainerRoot& root);

}  // namespace muster
