// RetainedWeights: frozen weights in memory that outlives an engine, so that the next one reads no
// model for them.
//
// Each entry is named by its content, a hash of all that its bytes depend on (frozen_store.h), is
// complete, and is not written to any more. Host memory is a memory file, which the guardian holds
// as it holds snapshot segments: a process that takes a lost one's place finds it here. A device's
// memory stays with the process.
//
// Belongs to a rank's process and lives as long; the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "trainer/supervise/guardian_message.h"

namespace muster {

class RetainedWeights {
 public:
  struct DeviceMemory {
    at::Tensor bytes;
    std::vector<float> offsets;  // of packed matrices, in their order
  };
  // How the guardian is to hold a file by that name, or to let it go; both may be empty.
  struct Guardian {
    std::function<void(const std::string& name, int file)> hold;
    std::function<void(const std::string& name)> drop;
  };

  RetainedWeights() = default;
  explicit RetainedWeights(Guardian guardian) : guardian_(std::move(guardian)) {}

  // Whether what the guardian holds by this name belongs here.
  static bool IsName(std::string_view name);
  // From the guardian; `held.name` is one of these.
  void Add(HeldSegment held);

  // Null and -1: there is none of that content.
  const DeviceMemory* device(std::uint64_t content) const;
  int file(std::uint64_t content) const;

  void Keep(std::uint64_t content, DeviceMemory memory);
  // Another descriptor of it is kept. `hold`: by the guardian as well, which one rank of those
  // that share it asks for. Errors: none is left of the process's.
  Status Keep(std::uint64_t content, int file, bool hold);
  // Lets all other memory of the device go.
  void KeepOnlyDevice(std::uint64_t content);
  // Lets all other files go; `contents` are those that any rank uses, because the guardian
  // hands every rank those of the whole node.
  void KeepOnlyFiles(const std::vector<std::uint64_t>& contents);

  // The names of the files.
  std::vector<std::string> names() const;

 private:
  Guardian guardian_;
  std::map<std::uint64_t, DeviceMemory> devices_;
  std::map<std::string, UniqueFd> files_;
};

}  // namespace muster
