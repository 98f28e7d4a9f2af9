#include "trainer/comm/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace muster {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<RankEnv> Read(const Variables& variables) {
  return ReadRankEnv([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string Refused(const Variables& variables) {
  const auto env = Read(variables);
  return env.ok() ? "accepted" : env.status().message();
}

TEST(RankEnv, NothingSetIsAJobOfOneProcess) {
  auto env = Read({});
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->rank, 0);
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->generation, 1);
  EXPECT_EQ(env->control_fd, -1);
  EXPECT_TRUE(env->resume_file.empty());
}

TEST(RankEnv, SaysWhetherGpusAreFake) {
  EXPECT_FALSE(Read({})->fake_gpus);
  EXPECT_TRUE(Read({{"MUSTER_FAKE_GPUS", "1"}})->fake_gpus);
  EXPECT_THAT(Refused({{"MUSTER_FAKE_GPUS", "some"}}), HasSubstr("MUSTER_FAKE_GPUS"));
}

TEST(RankEnv, TorchrunsVariables) {
  auto env = Read({{"RANK", "3"},
                   {"WORLD_SIZE", "4"},
                   {"LOCAL_RANK", "1"},
                   {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "10.0.0.1"},
                   {"MASTER_PORT", "29500"},
                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                   {"TORCHELASTIC_RUN_ID", "run7"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->generation, 3);
  EXPECT_EQ(env->job_id, "run7");
  const Rendezvous rendezvous = TakeRendezvous(&*env);
  EXPECT_EQ(rendezvous.rank, 3);
  EXPECT_EQ(rendezvous.world_size, 4);
  EXPECT_TRUE(rendezvous.spans_nodes);
  EXPECT_EQ(rendezvous.generation, 3);
  EXPECT_EQ(rendezvous.master_address, "10.0.0.1");
  EXPECT_EQ(rendezvous.master_port, 29500);
  EXPECT_FALSE(rendezvous.serve_store);
}

TEST(RankEnv, GuardiansVariablesWin) {
  auto env = Read({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "h"},
                   {"MASTER_PORT", "1"},
                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                   {"TORCHELASTIC_RUN_ID", "run7"},
                   {"MUSTER_JOB_ID", "0123456789"},
                   {"MUSTER_GENERATION", "9"},
                   {"MUSTER_CONTROL_FD", "3"},
                   {"MUSTER_PROGRESS_FD", "4"},
                   {"MUSTER_LISTEN_FD", "1000"},
                   {"MUSTER_BIND_ADDRESS", "10.1.0.4"},
                   {"MUSTER_RESUME_FILE", "/r.json"},
                   {"MUSTER_CHECKPOINT_DIR", "/c"},
                   {"COLLECTIVE_TIMEOUT_SECONDS", "60"}});
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_EQ(env->generation, 9);
  EXPECT_EQ(env->job_id, "0123456789");
  EXPECT_EQ(env->control_fd, 3);
  EXPECT_EQ(env->progress_fd, 4);
  EXPECT_EQ(env->resume_file, "/r.json");
  EXPECT_EQ(env->checkpoint_dir, "/c");
  EXPECT_EQ(env->collective_timeout_s, 60);
  Rendezvous rendezvous = TakeRendezvous(&*env);
  EXPECT_EQ(rendezvous.listen_fd.release(), 1000);
  EXPECT_FALSE(rendezvous.spans_nodes);
  EXPECT_EQ(rendezvous.bind_address, "10.1.0.4");
  EXPECT_FALSE(rendezvous.serve_store);
  EXPECT_EQ(env->listen_fd, -1);
}

TEST(RankEnv, TheBuddyRingIsOfNodes) {
  const Variables variables = {{"RANK", "0"},
                               {"WORLD_SIZE", "6"},
                               {"MASTER_ADDR", "h"},
                               {"MASTER_PORT", "1"},
                               {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_TRUE(Read(variables)->buddy_ring.empty());
  Variables with_ring = variables;
  with_ring["MUSTER_BUDDY_RING"] = "0,2,1";
  EXPECT_EQ(Read(with_ring)->buddy_ring, (std::vector<int>{0, 2, 1}));
}

TEST(RankEnv, RankZeroServesTheStoreWhenNobodyElseDoes) {
  Variables variables = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  auto first = Read(variables);
  EXPECT_TRUE(TakeRendezvous(&*first).serve_store);
  variables["RANK"] = "1";
  auto second = Read(variables);
  EXPECT_FALSE(TakeRendezvous(&*second).serve_store);
}

TEST(RankEnv, MistakesAreNamed) {
  EXPECT_THAT(Refused({{"RANK", "0"}}), HasSubstr("RANK and WORLD_SIZE go together"));
  EXPECT_THAT(Refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK=2 is not a whole number from 0 to 1"));
  EXPECT_THAT(Refused({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), HasSubstr("WORLD_SIZE=two"));
  EXPECT_THAT(Refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("MASTER_ADDR and MASTER_PORT"));
  EXPECT_THAT(Refused({{"MASTER_PORT", "65536"}}), HasSubstr("MASTER_PORT=65536"));
  for (const char* ring : {"0", "0,1,2", "1,1", "0,2", "0,1,", "a,b", "0;1"}) {
    EXPECT_THAT(Refused({{"RANK", "0"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "h"},
                         {"MASTER_PORT", "1"},
                         {"MUSTER_BUDDY_RING", ring}}),
                HasSubstr("does not name each of 2 nodes once"));
  }
  EXPECT_THAT(Refused({{"MUSTER_CONTROL_FD", "3x"}}), HasSubstr("MUSTER_CONTROL_FD=3x"));
  EXPECT_THAT(Refused({{"MUSTER_GENERATION", "0"}}), HasSubstr("MUSTER_GENERATION=0"));
  for (const char* variable : {"MUSTER_SHM_DISABLE", "TORCHELASTIC_USE_AGENT_STORE"}) {
    EXPECT_THAT(Refused({{variable, "maybe"}}),
                HasSubstr(std::string(variable) + "=maybe is neither on nor off"));
  }
}

// Groups took any text for it, snapshots only 1.
TEST(RankEnv, SharedMemoryIsDisabledByASwitch) {
  const auto disabled = [](const char* value) {
    return SharedMemoryDisabled([value](const char*) { return value; });
  };
  EXPECT_TRUE(*disabled("true"));
  EXPECT_TRUE(*disabled("1"));
  EXPECT_FALSE(*disabled("0"));
  EXPECT_FALSE(*disabled(nullptr));
  EXPECT_FALSE(disabled("maybe").ok());
}

}  // namespace
}  // namespace muster
