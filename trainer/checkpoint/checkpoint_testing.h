// What the checkpoint tests share: a directory that goes away and a rank's small state. Header of
// tests only.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muster::testing {

class TempDir {
 public:
  TempDir() {
    std::string path = std::filesystem::temp_directory_path() / "muster-checkpoint-XXXXXX";
    MUSTER_CHECK(mkdtemp(path.data()) != nullptr, "mkdtemp");
    path_ = path;
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Two arrays of different types and uneven length; values follow from `seed`.
struct State {
  std::vector<float> weight = std::vector<float>(1000);
  std::vector<std::uint8_t> flags = std::vector<std::uint8_t>(77);

  explicit State(int seed) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = static_cast<float>(seed) + 0.25F * static_cast<float>(i);
    }
    for (std::size_t i = 0; i < flags.size(); ++i) {
      flags[i] = static_cast<std::uint8_t>(i * static_cast<std::size_t>(seed + 3));
    }
  }

  // Points into this object.
  std::vector<ShardArray> arrays() const {
    std::vector<ShardArray> arrays(2);
    arrays[0] = {
        "block/weight", ElementType::kFloat32, 1000, const_cast<float*>(weight.data()), {}};
    arrays[0].intervals = {{"q_proj", {20, 25}, 0, 500, 0}, {"k_proj", {40, 30}, 100, 490, 500}};
    arrays[1] = {
        "block/flags", ElementType::kUint8, 77, const_cast<std::uint8_t*>(flags.data()), {}};
    return arrays;
  }

  friend bool operator==(const State&, const State&) = default;
};

}  // namespace muster::testing
