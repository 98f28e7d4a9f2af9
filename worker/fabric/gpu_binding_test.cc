#include "worker/fabric/gpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "worker/fabric/testing/tree.h"
#include "worker/health/testing/nvml_control.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A node whose GPUs can all be used.
GpuView Node(int gpus) {
  GpuView view{.inventory = GpuInventory{}};
  for (int i = 0; i < gpus; ++i) {
    const std::string number = std::to_string(i);
    view.device_files.push_back(number);
    view.usable_files.push_back(number);
    view.inventory->gpus.push_back({.index = i,
                                    .uuid = "GPU-0000000" + number + "-aaaa",
                                    .pci_address = "0000:0" + number + ":00.0"});
  }
  return view;
}

GpuBinding Check(const GpuView& view) { return CheckGpuBinding(view, "n1"); }

std::vector<std::string> Ids(const std::vector<NodeDevice>& devices) {
  std::vector<std::string> ids;
  for (const NodeDevice& one : devices) ids.push_back(one.device.id);
  return ids;
}
std::vector<std::string> Ids(const GpuView& view) { return Ids(Check(view).devices); }

constexpr char kGpu0[] = "GPU-00000000-aaaa", kGpu1[] = "GPU-00000001-aaaa";

TEST(GpuBinding, WithoutAVariableItIsAllThatMayBeUsed) {
  GpuView view = Node(4);
  view.inventory->gpus[2].permitted = false;
  view.usable_files = {"0", "1", "3"};
  const GpuBinding binding = Check(view);
  EXPECT_THAT(Ids(binding.devices), ElementsAre(kGpu0, kGpu1, "GPU-00000003-aaaa"));
  EXPECT_EQ(binding.devices[2], (NodeDevice{.device = {.id = "GPU-00000003-aaaa"},
                                            .cuda_name = "GPU-00000003-aaaa",
                                            .gpu = "GPU-00000003-aaaa",
                                            .gpu_index = 3,
                                            .pci_address = "0000:03:00.0"}));
  EXPECT_THAT(binding.problems, IsEmpty());
}

TEST(GpuBinding, AMachineWithoutGpusHasNothingToSay) {
  const GpuBinding binding = Check({});
  EXPECT_THAT(binding.devices, IsEmpty());
  EXPECT_THAT(binding.problems, IsEmpty());
  GpuView in_slurm{.visible = "NoDevFiles", .slurm = {{"SLURM_JOB_ID", "7"}}};
  EXPECT_THAT(Check(in_slurm).problems, IsEmpty());
}

TEST(GpuBinding, WhatIsNamedByNumberOrInPartHasItsUuid) {
  GpuView view = Node(2);
  view.inventory->gpus[0].kind = "Test GPU";
  view.inventory->gpus[0].memory_bytes = 8;
  view.visible = "1, GPU-00000000,0";
  const std::vector<NodeDevice> devices = Check(view).devices;
  EXPECT_THAT(Ids(devices), ElementsAre(kGpu1, kGpu0)) << "each once";
  EXPECT_EQ(devices[1].device.kind, "Test GPU");
  EXPECT_EQ(devices[1].device.memory_bytes, 8u);
  EXPECT_EQ(devices[1].cuda_name, kGpu0);
}

// As Slurm numbers them where it constrains devices.
TEST(GpuBinding, NumbersCountWhatTheCgroupAllows) {
  GpuView view = Node(4);
  for (const std::size_t forbidden : {0u, 2u}) view.inventory->gpus[forbidden].permitted = false;
  view.visible = "0,1";
  EXPECT_THAT(Ids(view), ElementsAre(kGpu1, "GPU-00000003-aaaa"));
  EXPECT_THAT(Check(view).problems, IsEmpty());
}

TEST(GpuBinding, AGpuThatIsDividedIsItsMigDevices) {
  GpuView view = Node(2);
  view.inventory->gpus[1].parts = {{"MIG-cccc-1", "part", 3}, {"MIG-dddd-2", "part", 4}};
  EXPECT_THAT(Ids(view), ElementsAre(kGpu0, "MIG-cccc-1", "MIG-dddd-2"));
  view.visible = "1";
  EXPECT_THAT(Ids(view), ElementsAre("MIG-cccc-1", "MIG-dddd-2"));
  view.visible = "MIG-dddd,MIG-GPU-00000001-aaaa/1/0,GPU-00000000";
  const GpuBinding binding = Check(view);
  EXPECT_THAT(Ids(binding.devices), ElementsAre("MIG-dddd-2", "MIG-GPU-00000001-aaaa_1_0", kGpu0));
  EXPECT_EQ(binding.devices[0], (NodeDevice{.device = {"MIG-dddd-2", "part", 4},
                                            .cuda_name = "MIG-dddd-2",
                                            .gpu = kGpu1,
                                            .gpu_index = 1,
                                            .pci_address = "0000:01:00.0"}));
  EXPECT_EQ(binding.devices[1].cuda_name, "MIG-GPU-00000001-aaaa/1/0");
  EXPECT_EQ(binding.devices[1].gpu, kGpu1);
  EXPECT_THAT(binding.problems, IsEmpty()) << "more parts than files are no contradiction";
}

TEST(GpuBinding, CudaStopsAtTheFirstEntryThatIsNone) {
  GpuView view = Node(2);
  view.visible = "1,-1,0";
  EXPECT_THAT(Ids(view), ElementsAre(kGpu1));
  view.visible = "";
  EXPECT_THAT(Check(view).devices, IsEmpty());
  EXPECT_THAT(Check(view).problems, IsEmpty()) << "hidden on purpose";
}

TEST(GpuBinding, GpusThatSlurmSplitOverTasksAreNamedWithTheOptionsToUse) {
  GpuView view = Node(8);
  view.visible = "0";
  view.slurm = {{"SLURM_JOB_ID", "7"},
                {"SLURM_GPUS_ON_NODE", "8"},
                {"SLURM_GPUS_PER_TASK", "1"},
                {"SLURM_NTASKS_PER_NODE", "8"}};
  EXPECT_THAT(Check(view).problems,
              ElementsAre("Slurm bound 1 GPU of this node's 8 to this task; ask for "
                          "--gpus-per-node and one task per node (--ntasks-per-node=1), without "
                          "--gpus-per-task"));
  view.slurm.erase("SLURM_GPUS_PER_TASK");
  view.visible = "0,1,2,3,4,5,6,7";
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("Slurm starts 8 tasks on this node")));
  view.slurm["SLURM_NTASKS_PER_NODE"] = "1";
  EXPECT_THAT(Check(view).problems, IsEmpty());
}

TEST(GpuBinding, AnEntryThatIsNotThereOrNotAllowedIsNamed) {
  GpuView view = Node(2);
  view.visible = "0,6";
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("names 6, but this node shows 2 GPUs")));
  EXPECT_THAT(Ids(view), ElementsAre(kGpu0, "n1-gpu6"));
  EXPECT_EQ(Check(view).devices[1].device.fault, "this node shows no such GPU");
  view.visible = "GPU-ffff";
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("names GPU-ffff")));
  view.visible = "0,1";
  view.inventory->gpus[1].permitted = false;
  EXPECT_THAT(Check(view).problems,
              ElementsAre(HasSubstr("cgroup of this step does not allow it")));
  EXPECT_EQ(Check(view).devices[0].device.fault, "");
  EXPECT_THAT(Check(view).devices[1].device.fault, HasSubstr("does not allow it"));
}

TEST(GpuBinding, WithoutALibraryTheDeviceFilesTell) {
  GpuView view = Node(4);
  view.inventory.reset();
  EXPECT_THAT(Ids(view), ElementsAre("n1-gpu0", "n1-gpu1", "n1-gpu2", "n1-gpu3"));
  EXPECT_EQ(Check(view).devices[2].cuda_name, "2");
  EXPECT_EQ(Check(view).devices[2].gpu_index, 2);
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("no GPU management library")));
  view.visible = "0,1,2,3";
  view.usable_files = {"0", "1"};
  EXPECT_THAT(Check(view).problems,
              ElementsAre(HasSubstr("names 4 GPUs, but only 2 can be opened here")));
  view.usable_files.clear();
  EXPECT_THAT(Check(view).problems,
              ElementsAre(HasSubstr("none of the 4 GPUs of this node can be opened")));
}

TEST(GpuBinding, GpusThatWereNotRequestedMayBelongToAnotherJob) {
  GpuView view = Node(4);
  view.slurm = {{"SLURM_JOB_ID", "7"}};
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("Slurm granted no GPUs to this step")));
  view.slurm["SLURM_STEP_GPUS"] = "0,1,2,3";
  EXPECT_THAT(Check(view).problems, IsEmpty());
}

TEST(LookAtGpus, ReadsVariablesFilesAndTheLibrary) {
  const TempDirForTest root;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"}) {
    std::filesystem::create_directories(root / "dev");
    std::ofstream(root / ("dev/" + std::string(name))) << "";
  }
  const char* const environment[] = {"CUDA_VISIBLE_DEVICES=0,1", "SLURM_JOB_ID=9", "HOME=/h",
                                     nullptr};
  const GpuView view = LookAtGpus(environment, MUSTER_TEST_NVML, root.path());
  EXPECT_EQ(view.visible, "0,1");
  EXPECT_EQ(view.slurm, (std::map<std::string, std::string>{{"SLURM_JOB_ID", "9"}}));
  EXPECT_THAT(view.device_files, ElementsAre("0", "1", "10"));
  EXPECT_THAT(view.usable_files, ElementsAre("0", "1", "10"));
  ASSERT_TRUE(view.inventory);
  EXPECT_EQ(view.inventory->gpus.size(), 2u);
}

TEST(GpuInventory, ReportsNamesPlacesLinksAndParts) {
  const auto inventory = ReadGpuInventory(MUSTER_TEST_NVML);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  EXPECT_THAT(inventory->gpus,
              ElementsAre(Gpu{.index = 0,
                              .uuid = "GPU-00000000-aaaa",
                              .kind = "Test GPU",
                              .pci_address = "0000:3b:00.0",
                              .memory_bytes = 8'000'000'000,
                              .active_links = 12,
                              .link_peers = {"0000:05:00.0"},
                              .clique = "000000000000000000000000000000ab/7"},
                          Gpu{.index = 1,
                              .uuid = "GPU-00000001-aaaa",
                              .kind = "Test GPU",
                              .pci_address = "0000:af:00.0",
                              .memory_bytes = 8'000'000'000,
                              .parts = {{"MIG-00000000-bbbb", "Test GPU MIG 1g", 8'000'000'000},
                                        {"MIG-00000001-bbbb", "Test GPU MIG 1g", 8'000'000'000}},
                              .active_links = 12,
                              .link_peers = {"0000:05:00.0"},
                              .clique = "000000000000000000000000000000ab/7"}));
  EXPECT_EQ(inventory->Nvlink().clique, "000000000000000000000000000000ab/7");
  EXPECT_EQ(inventory->Nvlink().active_links, 12);
  EXPECT_EQ(inventory->Nvlink().gpus, 2);
  EXPECT_EQ(ReadGpuInventory("libmuster-no-such.so").status().code(), StatusCode::kNotFound);
}

TEST(GpuInventory, AGpuThatIsLostIsNotTakenForOneThatIsForbidden) {
  NvmlControlForTest nvml;
  nvml.Answer(1, 4);  // NVML_ERROR_NO_PERMISSION
  GpuView view{.visible = "0,1", .inventory = ReadGpuInventory(nvml.path()).value()};
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("cgroup of this step")));
  nvml.Answer(1, 15);  // NVML_ERROR_GPU_IS_LOST
  view.inventory = ReadGpuInventory(nvml.path()).value();
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("GPU 1 does not answer (error 15")));
  view.visible.reset();
  EXPECT_THAT(Ids(view), ElementsAre(kGpu0, "n1-gpu1"));
  EXPECT_EQ(Check(view).devices[0].device.fault, "");
  EXPECT_THAT(Check(view).devices[1].device.fault, HasSubstr("does not answer (error 15"))
      << "it takes itself out, not the node";
  EXPECT_THAT(Check(view).problems, ElementsAre(HasSubstr("GPU 1 does not answer (error 15")));
}

Gpu Linked(const std::string& pci_address, const std::vector<std::string>& peers, int links = 4) {
  return {.pci_address = pci_address, .active_links = links, .link_peers = peers};
}

TEST(LinkDomains, GpusThatLinksJoinDirectlyOrBySwitchesAreOfOne) {
  EXPECT_THAT(LinkDomains({Linked("a", {"b"}), Linked("b", {"a"}), Linked("c", {}, 0),
                           Linked("d", {"s"}), Linked("e", {"s"}), Linked("f", {"x"})},
                          "n1"),
              ElementsAre("n1/nvlink0", "n1/nvlink0", "", "n1/nvlink3", "n1/nvlink3", ""));
}

TEST(LinkDomains, AChainIsOne) {
  EXPECT_THAT(LinkDomains({Linked("a", {"c"}), Linked("b", {"d"}), Linked("c", {"a", "d"}),
                           Linked("d", {"b", "c"})},
                          "n1"),
              ElementsAre("n1/nvlink0", "n1/nvlink0", "n1/nvlink0", "n1/nvlink0"));
}

TEST(LinkDomains, LinksToWhatIsNotShownLeadToOneSwitchAndACliqueHasItsName) {
  EXPECT_THAT(LinkDomains({Linked("a", {}), Linked("b", {})}, "n1"),
              ElementsAre("n1/nvlink0", "n1/nvlink0"));
  Gpu of_clique = Linked("a", {"s"});
  of_clique.clique = "ab/7";
  EXPECT_THAT(LinkDomains({of_clique, of_clique}, "n1"), ElementsAre("ab/7", "ab/7"));
}

}  // namespace
}  // namespace muster::worker
