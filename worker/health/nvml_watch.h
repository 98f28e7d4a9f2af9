// NvmlWatch: critical Xid events and recovery actions of the node's NVIDIA GPUs, from the driver's
// management library, which is loaded at run time if there is one.
//
// Owns the thread that waits in the library; it is joined by the destructor within about 0.2 s.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"

namespace muster::worker {

struct NvmlEvent {
  int gpu = 0;  // index
  enum class Kind { kXid, kRecoveryAction } kind = Kind::kXid;
  int value = 0;  // Xid, or the driver's recovery action (xid.h); 0: none any more

  friend bool operator==(const NvmlEvent&, const NvmlEvent&) = default;
};

class NvmlWatch {
 public:
  // `tell` is called on the watch's own thread. kNotFound: there is no such library; other errors
  // name what cannot be used.
  static Result<std::unique_ptr<NvmlWatch>> Start(const std::string& library,
                                                  std::function<void(const NvmlEvent&)> tell);
  ~NvmlWatch();

  int gpus() const;

 private:
  class Impl;
  explicit NvmlWatch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker
