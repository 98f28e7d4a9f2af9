#include "coordinator/discovery.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

TEST(ServiceDiscovery, NamesTheCoordinatorItself) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), 0});
  EXPECT_EQ(ServiceDiscovery(controller, {"127.0.0.1:9000"}, false, {}),
            R"([{"labels":{"component":"coordinator"},"targets":["127.0.0.1:9000"]}])");
}

TEST(ServiceDiscovery, NamesClusterAndSlurmJobIfTheyAreKnown) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), 0});
  EXPECT_EQ(ServiceDiscovery(controller, {"10.0.0.1:7001"}, true, {"lab", "", "4711"}),
            R"([{"labels":{"__scheme__":"https","cluster":"lab","component":"coordinator",)"
            R"("slurm_job_id":"4711"},"targets":["10.0.0.1:7001"]}])");
}

TEST(ServiceDiscovery, NamesEachCoordinatorThatOtherMachinesReach) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), 0});
  EXPECT_EQ(ServiceDiscovery(controller, {"10.0.0.1:7001", "", "10.0.0.2:7001"}, false, {}),
            R"([{"labels":{"component":"coordinator"},"targets":["10.0.0.1:7001"]},)"
            R"({"labels":{"component":"coordinator"},"targets":["10.0.0.2:7001"]}])");
}

TEST(ServiceDiscovery, ANameThatIsNoUtf8EndsNothing) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), 0});
  EXPECT_EQ(ServiceDiscovery(controller, {"10.0.0.1:7001"}, false, {"l\xe4z", "", ""}),
            "[{\"labels\":{\"cluster\":\"l\ufffdz\",\"component\":\"coordinator\"},"
            "\"targets\":[\"10.0.0.1:7001\"]}]");
}

TEST(ServiceDiscovery, OmitsACoordinatorThatNoOtherMachineReaches) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), 0});
  EXPECT_EQ(ServiceDiscovery(controller, {""}, true, {}), "[]");
}

TEST(ReachableAddress, IsTheHostsOwnWhereEveryAddressIsListenedAt) {
  const auto own = [] { return Result<std::string>("10.0.0.1"); };
  EXPECT_EQ(*ReachableAddress("0.0.0.0:7001", own), "10.0.0.1:7001");
  EXPECT_EQ(*ReachableAddress("[::]:7001", own), "10.0.0.1:7001");
  EXPECT_EQ(*ReachableAddress("[::]:7001", [] { return Result<std::string>("fd00::1"); }),
            "[fd00::1]:7001");
  // One that was named is believed, whatever there is beside it.
  EXPECT_EQ(*ReachableAddress("10.9.0.7:7001", own), "10.9.0.7:7001");
  EXPECT_EQ(*ReachableAddress("[fd00::7]:7001", own), "[fd00::7]:7001");
  const auto none = [] { return Result<std::string>(NotFound("nothing leads out")); };
  EXPECT_EQ(ReachableAddress("0.0.0.0:7001", none).status().code(), StatusCode::kNotFound);
}

class DiscoveryFileTest : public testing::Test {
 protected:
  // Runs the loop until the file holds `text`; false if it does not within some seconds.
  bool RunUntil(const std::string& path, const std::string& text) {
    return RunUntil([&] {
      const auto read = ReadFile(path);
      return read.ok() && *read == text;
    });
  }
  bool RunUntil(const std::function<bool()>& wanted) {
    Timer look(loop_);
    Timer limit(loop_);
    bool seen = false;
    std::function<void()> check = [&] {
      seen = wanted();
      if (seen) return loop_.Stop();
      look.Start(std::chrono::milliseconds(2), check);
    };
    limit.Start(std::chrono::seconds(10), [&] { loop_.Stop(); });
    loop_.Post(check);
    loop_.Run();
    return seen;
  }

  const TempDirForTest temp_;
  const std::string root_ = temp_.path();
  EventLoop loop_;
};

TEST_F(DiscoveryFileTest, HoldsTheListAtOnce) {
  const std::string path = root_ + "/muster.json";
  DiscoveryFile file(loop_, path, [] { return "[]"; });
  file.Start();
  EXPECT_TRUE(RunUntil(path, "[]\n"));
}

TEST_F(DiscoveryFileTest, IsTriedAgainWhereItCouldNotBeWritten) {
  const std::string path = root_ + "/later/muster.json";
  int looks = 0;
  DiscoveryFile file(loop_, path, [&] {
    if (++looks == 2) std::filesystem::create_directory(root_ + "/later");
    return "[1]";
  });
  file.Start();
  EXPECT_TRUE(RunUntil(path, "[1]\n"));
  EXPECT_GE(looks, 2);
}

TEST_F(DiscoveryFileTest, IsWrittenAgainAfterItWasRemoved) {
  const std::string path = root_ + "/muster.json";
  bool removed = false;
  DiscoveryFile file(loop_, path, [] { return "[2]"; });
  file.Start();
  EXPECT_TRUE(RunUntil([&] {
    const bool there = std::filesystem::exists(path);
    if (there && !removed)
      removed = std::filesystem::remove(path);
    else
      return there;
    return false;
  }));
  EXPECT_TRUE(removed);
}

}  // namespace
}  // namespace muster
