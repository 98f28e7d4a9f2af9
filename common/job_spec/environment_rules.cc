#include "common/job_spec/environment_rules.h"

#include <array>
#include <string_view>

namespace muster {

bool IsVariableName(const std::string& name) {
  static constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

std::string WhyReserved(const std::string& name) {
  static constexpr std::array<std::string_view, 13> kRankVariables = {
      "MASTER_ADDR", "MASTER_PORT",      "RANK",       "LOCAL_RANK",
      "WORLD_SIZE",  "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
      "ROLE_RANK",   "ROLE_WORLD_SIZE",  "NODE_RANK",  "CUDA_VISIBLE_DEVICES",
      "ROLE_NAME"};
  if (name == "OMP_NUM_THREADS")
    return "is set by muster for every rank; use resources.cpus_per_rank";
  if (name.starts_with("MUSTER_") || name.starts_with("TORCHELASTIC_"))
    return "is set by muster for every rank and must not be overridden";
  for (const std::string_view reserved : kRankVariables)
    if (name == reserved) return "is set by muster for every rank and must not be overridden";
  return "";
}

}  // namespace muster
