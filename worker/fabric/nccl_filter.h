// The lists by which NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose, as NCCL's documentation of its
// environment describes them: "mlx5" by prefix, "=mlx5_0,mlx5_1" by name, "^docker" and "^=docker0"
// all but those; an adapter's port is "mlx5_0:1". Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

class NcclFilter {
 public:
  // Empty: takes everything.
  explicit NcclFilter(std::string_view text);

  bool Takes(std::string_view name) const { return TakesPort(name, -1); }
  bool TakesPort(std::string_view name, int port) const;

 private:
  struct Entry {
    std::string name;
    int port = -1;  // any
  };
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace muster::worker
