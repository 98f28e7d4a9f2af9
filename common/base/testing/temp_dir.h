// A directory for one test, removed with all that is in it. Tests only.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace muster {

class TempDirForTest {
 public:
  // In `parent`, which is there.
  explicit TempDirForTest(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(MakePath(parent)) {}
  ~TempDirForTest() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirForTest(const TempDirForTest&) = delete;
  TempDirForTest& operator=(const TempDirForTest&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  static std::string MakePath(const std::filesystem::path& parent) {
    std::string path = (parent / "muster-test-XXXXXX").string();
    return ::mkdtemp(path.data()) != nullptr ? path : std::string();
  }
  const std::string path_;
};

}  // namespace muster
