// LogCarrier: copies a program's log from this node's disk into the shared directory.
//
// A program that wrote there itself would stop with the file system. Carry blocks; calls must not
// overlap, otherwise any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace muster::worker {

class LogCarrier {
 public:
  LogCarrier(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  // Appends to `to` what `from` has grown by.
  Status Carry();

 private:
  const std::string from_;
  const std::string to_;
  std::int64_t carried_ = 0;
};

}  // namespace muster::worker
