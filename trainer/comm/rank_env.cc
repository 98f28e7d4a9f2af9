#include "trainer/comm/rank_env.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "common/base/switch.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

class Reader {
 public:
  explicit Reader(const GetEnv& get) : get_(get) {}

  std::string_view Text(const char* name) const {
    const char* value = get_(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }
  bool Has(const char* name) const { return !Text(name).empty(); }
  Result<bool> Switch(const char* name) const { return ReadSwitch(name, get_(name)); }

  // Leaves `out` alone when the variable is not set.
  template <typename T>
  Status Integer(const char* name, std::int64_t min, std::int64_t max, T* out) const {
    const std::string_view text = Text(name);
    if (text.empty()) return OkStatus();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      return InvalidArgument(std::string(name) + "=" + std::string(text) +
                             " is not a whole number from " + std::to_string(min) + " to " +
                             std::to_string(max));
    }
    *out = static_cast<T>(value);
    return OkStatus();
  }

 private:
  const GetEnv& get_;
};

Status ReadPlace(const Reader& reader, RankEnv* env) {
  constexpr std::int64_t kMaxRanks = 1 << 20;
  if (reader.Has("RANK") != reader.Has("WORLD_SIZE")) {
    return InvalidArgument(
        "RANK and WORLD_SIZE go together and only one of them is set: set both, as torchrun does, "
        "or neither for a single process");
  }
  MUSTER_RETURN_IF_ERROR(reader.Integer("WORLD_SIZE", 1, kMaxRanks, &env->world_size));
  MUSTER_RETURN_IF_ERROR(reader.Integer("RANK", 0, env->world_size - 1, &env->rank));
  MUSTER_RETURN_IF_ERROR(
      reader.Integer("LOCAL_WORLD_SIZE", 1, env->world_size, &env->local_world_size));
  return reader.Integer("LOCAL_RANK", 0, kMaxRanks, &env->local_rank);
}

Status ReadMaster(const Reader& reader, RankEnv* env) {
  env->master_address = reader.Text("MASTER_ADDR");
  MUSTER_RETURN_IF_ERROR(reader.Integer("MASTER_PORT", 1, 65535, &env->master_port));
  MUSTER_ASSIGN_OR_RETURN(env->agent_store, reader.Switch("TORCHELASTIC_USE_AGENT_STORE"));
  if (env->world_size > 1 && (env->master_address.empty() || env->master_port == 0)) {
    return InvalidArgument("WORLD_SIZE is " + std::to_string(env->world_size) +
                           ": MASTER_ADDR and MASTER_PORT must say where rank 0 is reached");
  }
  return OkStatus();
}

Status ReadGuardian(const Reader& reader, RankEnv* env) {
  constexpr std::int64_t kMaxFd = 1 << 20;
  std::int64_t restarts = 0;
  MUSTER_RETURN_IF_ERROR(reader.Integer("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, &restarts));
  env->generation = restarts + 1;
  MUSTER_RETURN_IF_ERROR(reader.Integer(kGenerationVariable, 1, INT64_MAX, &env->generation));
  MUSTER_RETURN_IF_ERROR(reader.Integer(kListenFdVariable, 0, kMaxFd, &env->listen_fd));
  MUSTER_RETURN_IF_ERROR(reader.Integer(kControlFdVariable, 0, kMaxFd, &env->control_fd));
  MUSTER_RETURN_IF_ERROR(reader.Integer(kProgressFdVariable, 0, kMaxFd, &env->progress_fd));
  MUSTER_RETURN_IF_ERROR(
      reader.Integer("COLLECTIVE_TIMEOUT_SECONDS", 1, 7 * 86400, &env->collective_timeout_s));
  env->job_id = reader.Text(reader.Has(kJobIdVariable) ? kJobIdVariable : "TORCHELASTIC_RUN_ID");
  MUSTER_RETURN_IF_ERROR(reader.Switch(kShmDisableVariable).status());
  MUSTER_ASSIGN_OR_RETURN(env->fake_gpus, reader.Switch(kFakeGpusVariable));
  env->bind_address = reader.Text(kBindAddressVariable);
  env->resume_file = reader.Text(kResumeFileVariable);
  env->checkpoint_dir = reader.Text(kCheckpointDirVariable);
  return OkStatus();
}

Status ReadBuddyRing(const Reader& reader, RankEnv* env) {
  const std::string_view text = reader.Text(kBuddyRingVariable);
  if (text.empty()) return OkStatus();
  const int nodes = env->world_size / env->local_world_size;
  std::vector<int> ring;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool whole = false;
  while (!whole) {
    int node = -1;
    const auto [next, error] = std::from_chars(at, end, node);
    if (error != std::errc()) break;
    ring.push_back(node);
    whole = next == end;
    if (!whole && *next != ',') break;
    at = next + 1;
  }
  std::vector<int> sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  bool each_once = whole && static_cast<int>(sorted.size()) == nodes;
  for (int n = 0; each_once && n < nodes; ++n) each_once = sorted[n] == n;
  if (!each_once) {
    return InvalidArgument(std::string(kBuddyRingVariable) + "=" + std::string(text) +
                           " does not name each of " + std::to_string(nodes) + " nodes once");
  }
  env->buddy_ring = std::move(ring);
  return OkStatus();
}

}  // namespace

Result<RankEnv> ReadRankEnv(const GetEnv& get) {
  const Reader reader(get);
  RankEnv env;
  MUSTER_RETURN_IF_ERROR(ReadPlace(reader, &env));
  MUSTER_RETURN_IF_ERROR(ReadMaster(reader, &env));
  MUSTER_RETURN_IF_ERROR(ReadGuardian(reader, &env));
  MUSTER_RETURN_IF_ERROR(ReadBuddyRing(reader, &env));
  return env;
}

Result<bool> SharedMemoryDisabled(const GetEnv& get) {
  return ReadSwitch(kShmDisableVariable, get(kShmDisableVariable));
}

Rendezvous TakeRendezvous(RankEnv* env) {
  Rendezvous rendezvous;
  rendezvous.generation = env->generation;
  rendezvous.rank = env->rank;
  rendezvous.world_size = env->world_size;
  rendezvous.spans_nodes = env->world_size > env->local_world_size;
  rendezvous.master_address = env->master_address;
  rendezvous.master_port = env->master_port;
  rendezvous.bind_address = env->bind_address;
  if (env->agent_store) return rendezvous;
  rendezvous.token = env->rendezvous_token;
  if (env->listen_fd >= 0) {
    rendezvous.listen_fd = UniqueFd(std::exchange(env->listen_fd, -1));
  } else {
    rendezvous.serve_store = env->rank == 0;
  }
  return rendezvous;
}

}  // namespace muster
