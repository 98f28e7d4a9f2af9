#include "trainer/comm/transport/nccl/nccl_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"
#include "trainer/comm/transport/nccl/testing/nccl_gang_testing.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NcclNetwork : public ::testing::Test {
 protected:
  void AddPort(const std::string& adapter, const std::string& port, const std::string& state) {
    const std::string folder = "sys/class/infiniband/" + adapter + "/ports/" + port;
    fs::create_directories(root_ / folder);
    root_.Write(folder + "/state", state + "\n");
  }
  void Open(const std::string& file) {
    fs::create_directories(root_ / "proc/self/fd");
    fs::create_symlink(file, root_ / ("proc/self/fd/" + std::to_string(++opened_)));
  }
  // As for ranks whose environment does not set NCCL_NET.
  std::string Said() const { return SocketFallback(ReadRdmaUse(root_.path()), nullptr); }

  const TempDirForTest root_;
  int opened_ = 2;
};

TEST_F(NcclNetwork, IsNoFallbackWhereThereIsNoAdapterThatCouldBeUsed) {
  EXPECT_EQ(Said(), "");
  AddPort("mlx5_0", "1", "1: DOWN");
  AddPort("mlx5_1", "1", "2: INIT");
  AddPort("mlx5_2", "1", "5: ACTIVE_DEFER");
  Open("socket:[4711]");
  EXPECT_EQ(Said(), "");
  EXPECT_TRUE(ReadRdmaUse(root_.path()).adapters.empty());
}

TEST_F(NcclNetwork, IsSocketsWhereNoAdapterWasOpened) {
  AddPort("mlx5_0", "1", "1: DOWN");
  AddPort("mlx5_0", "2", "4: ACTIVE");
  Open("socket:[4711]");
  Open("/dev/nvidia0");
  Open("/dev/infiniband/rdma_cm");
  EXPECT_THAT(Said(), StartsWith("use sockets between nodes"));
  EXPECT_THAT(Said(), HasSubstr("(mlx5_0): NCCL has opened none"));
  AddPort("mlx5_1", "1", "4: ACTIVE");
  AddPort("mlx5_2", "1", "4: ACTIVE");
  EXPECT_THAT(Said(), HasSubstr("(mlx5_0, mlx5_1, mlx5_2)"));
}

TEST_F(NcclNetwork, IsRdmaWhereAnAdapterIsOpen) {
  AddPort("rdmap16s27", "1", "4: ACTIVE");
  for (const char* file : {"/dev/infiniband/uverbs0", "/dev/hfi1_0", "/dev/cxi0"}) {
    EXPECT_NE(Said(), "");
    Open(file);
    EXPECT_EQ(Said(), "") << file;
    fs::remove_all(root_ / "proc");
  }
}

// NCCL 2.18 to 2.27 open the adapters before they see that others than sockets are not wanted.
TEST_F(NcclNetwork, IsSocketsWhereTheyAreChosen) {
  const RdmaUse use{.adapters = {"mlx5_0"}, .in_use = true};
  for (const char* net : {"Socket", "socket"}) {
    EXPECT_THAT(SocketFallback(use, net), HasSubstr("NCCL_NET is Socket"));
  }
  EXPECT_EQ(SocketFallback(use, "IB"), "");
  EXPECT_EQ(SocketFallback({}, "Socket"), "");
}

TEST_F(NcclNetwork, IsReportedByTheFirstRankOfAGangOnSeveralNodes) {
  AddPort("mlx5_0", "1", "4: ACTIVE");
  for (const bool spans_nodes : {false, true}) {
    NcclTestGang gang(2, {.spans_nodes = spans_nodes, .root = root_.path()});
    gang.MustForm(1);
    gang.Run([&](int r, Communicator& communicator) {
      const bool says = spans_nodes && r == 0;
      EXPECT_EQ(communicator.fallback().starts_with("use sockets between nodes"), says);
      auto pair = communicator.Split("pair", {0, 1}, Deadline::After(std::chrono::seconds(10)));
      ASSERT_TRUE(pair.ok());
      EXPECT_EQ((*pair)->fallback(), "") << "NCCL chooses for the process";
    });
  }
}

}  // namespace
}  // namespace muster::testing
