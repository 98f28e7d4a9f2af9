// HostPeak: the most host memory that this process held at once during a stage.
//
// The kernel keeps one high-water mark of resident memory per process (VmHWM). A HostPeak sets it
// back when it is made, where the kernel allows that; stages of several threads share the one mark,
// so they follow one another. Pages of the page cache count only where they are mapped.
//
//   const HostPeak loading;
//   ...
//   Log(loading.bytes());
#pragma once

#include <cstdint>

namespace muster {

class HostPeak {
 public:
  HostPeak();

  // The mark by now; 0 where there is no /proc.
  std::int64_t bytes() const;
  // What was resident when the stage began.
  std::int64_t begin_bytes() const { return begin_bytes_; }
  // False: the mark could not be set back, so bytes() is the peak since the process began.
  bool of_stage() const { return of_stage_; }

 private:
  bool of_stage_ = false;
  std::int64_t begin_bytes_ = 0;
};

}  // namespace muster
