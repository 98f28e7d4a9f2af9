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

TEST(GpuBinding, WithoutAVariableItIsAllThatMayBeUsed) {
  GpuView view = Node(4);
  view.inventory->gpus[2].permitted = false;
  view.usable_files = {"0", "1", "3"};
  const GpuBinding binding = CheckGpuBinding(view);
  EXPECT_THAT(binding.devices, ElementsAre("0", "1", "3"));
  EXPECT_THAT(binding.pci_addresses, ElementsAre("0000:00:00.0", "0000:01:00.0", "0000:03:00.0"));
  EXPECT_THAT(binding.problems, IsEmpty());
}

TEST(GpuBinding, AMachineWithoutGpusHasNothingToSay) {
  const GpuBinding binding = CheckGpuBinding({});
  EXPECT_THAT(binding.devices, IsEmpty());
  EXPECT_THAT(binding.problems, IsEmpty());
  GpuView in_slurm{.visible = "NoDevFiles", .slurm = {{"SLURM_JOB_ID", "7"}}};
  EXPECT_THAT(CheckGpuBinding(in_slurm).problems, IsEmpty());
}

TEST(GpuBinding, NamesStayAsTheyWereGiven) {
  GpuView view = Node(2);
  view.inventory->gpus[1].mig_uuids = {"MIG-cccc-1", "MIG-dddd-2"};
  view.visible = "GPU-00000000, MIG-dddd-2,MIG-GPU-00000001-aaaa/1/0,1";
  const GpuBinding binding = CheckGpuBinding(view);
  EXPECT_THAT(binding.devices,
              ElementsAre("GPU-00000000", "MIG-dddd-2", "MIG-GPU-00000001-aaaa/1/0", "1"));
  EXPECT_THAT(binding.pci_addresses,
              ElementsAre("0000:00:00.0", "0000:01:00.0", "0000:01:00.0", "0000:01:00.0"));
  EXPECT_THAT(binding.problems, IsEmpty()) << "more parts than files are no contradiction";
}

TEST(GpuBinding, CudaStopsAtTheFirstEntryThatIsNone) {
  GpuView view = Node(2);
  view.visible = "1,-1,0";
  EXPECT_THAT(CheckGpuBinding(view).devices, ElementsAre("1"));
  view.visible = "";
  EXPECT_THAT(CheckGpuBinding(view).devices, IsEmpty());
  EXPECT_THAT(CheckGpuBinding(view).problems, IsEmpty()) << "hidden on purpose";
}

TEST(GpuBinding, GpusThatSlurmSplitOverTasksAreNamedWithTheOptionsToUse) {
  GpuView view = Node(8);
  view.visible = "0";
  view.slurm = {{"SLURM_JOB_ID", "7"},
                {"SLURM_GPUS_ON_NODE", "8"},
                {"SLURM_GPUS_PER_TASK", "1"},
                {"SLURM_NTASKS_PER_NODE", "8"}};
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre("Slurm bound 1 GPU of this node's 8 to this task; ask for "
                          "--gpus-per-node and one task per node (--ntasks-per-node=1), without "
                          "--gpus-per-task"));
  view.slurm.erase("SLURM_GPUS_PER_TASK");
  view.visible = "0,1,2,3,4,5,6,7";
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("Slurm starts 8 tasks on this node")));
  view.slurm["SLURM_NTASKS_PER_NODE"] = "1";
  EXPECT_THAT(CheckGpuBinding(view).problems, IsEmpty());
}

TEST(GpuBinding, AnEntryThatIsNotThereOrNotAllowedIsNamed) {
  GpuView view = Node(2);
  view.visible = "0,6";
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("names 6, but this node shows 2 GPUs")));
  view.visible = "GPU-ffff";
  EXPECT_THAT(CheckGpuBinding(view).problems, ElementsAre(HasSubstr("names GPU-ffff")));
  view.visible = "0,1";
  view.inventory->gpus[1].permitted = false;
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("cgroup of this step does not allow it")));
}

TEST(GpuBinding, WithoutALibraryTheDeviceFilesTell) {
  GpuView view = Node(4);
  view.inventory.reset();
  EXPECT_THAT(CheckGpuBinding(view).devices, ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(CheckGpuBinding(view).problems, ElementsAre(HasSubstr("no GPU management library")));
  view.visible = "0,1,2,3";
  view.usable_files = {"0", "1"};
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("names 4 GPUs, but only 2 can be opened here")));
  view.usable_files.clear();
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("none of the 4 GPUs of this node can be opened")));
}

TEST(GpuBinding, GpusThatWereNotRequestedMayBelongToAnotherJob) {
  GpuView view = Node(4);
  view.slurm = {{"SLURM_JOB_ID", "7"}};
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("Slurm granted no GPUs to this step")));
  view.slurm["SLURM_STEP_GPUS"] = "0,1,2,3";
  EXPECT_THAT(CheckGpuBinding(view).problems, IsEmpty());
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
                              .pci_address = "0000:3b:00.0",
                              .active_links = 12},
                          Gpu{.index = 1,
                              .uuid = "GPU-00000001-aaaa",
                              .pci_address = "0000:af:00.0",
                              .mig_uuids = {"MIG-00000000-bbbb", "MIG-00000001-bbbb"},
                              .active_links = 12}));
  EXPECT_EQ(inventory->clique, "000000000000000000000000000000ab/7");
  EXPECT_EQ(inventory->Nvlink().active_links, 12);
  EXPECT_EQ(inventory->Nvlink().gpus, 2);
  EXPECT_EQ(ReadGpuInventory("libmuster-no-such.so").status().code(), StatusCode::kNotFound);
}

TEST(GpuInventory, AGpuThatIsLostIsNotTakenForOneThatIsForbidden) {
  NvmlControlForTest nvml;
  nvml.Answer(1, 4);  // NVML_ERROR_NO_PERMISSION
  GpuView view{.visible = "0,1", .inventory = ReadGpuInventory(nvml.path()).value()};
  EXPECT_THAT(CheckGpuBinding(view).problems, ElementsAre(HasSubstr("cgroup of this step")));
  nvml.Answer(1, 15);  // NVML_ERROR_GPU_IS_LOST
  view.inventory = ReadGpuInventory(nvml.path()).value();
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("GPU 1 does not answer (error 15")));
  view.visible.reset();
  EXPECT_THAT(CheckGpuBinding(view).devices, ElementsAre("0"));
  EXPECT_THAT(CheckGpuBinding(view).problems,
              ElementsAre(HasSubstr("GPU 1 does not answer (error 15")));
}

}  // namespace
}  // namespace muster::worker
