// A tree of files as kernels and drivers show it, as compact text, written into a test's own
// directory. Tests only. The trees were written by hand from knowledge of such machines; none was
// recorded on one.
//
//   sys/class/net/eth{0,1}/speed = 100000         a file with one line
//   sys/class/net/eth0/device -> ../../devices/x  a link
//   # ...                                         a comment
//
// {0..7} and {07,0f} stand for several lines; all of a line take their next value together, and @
// in them is a comma.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {

class TreeForTest {
 public:
  // testdata/NAME.tree
  explicit TreeForTest(const std::string& name);

  const std::string& path() const { return directory_.path(); }
  void Write(const std::string& file, const std::string& line) const;
  void Remove(const std::string& file) const { std::filesystem::remove_all(directory_ / file); }

 private:
  TempDirForTest directory_;
};

}  // namespace muster::worker
