#include "worker/fabric/gpu_binding.h"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "common/base/unique_fd.h"
#include "worker/fabric/sysfs.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// The entries of the variable that CUDA would use: it stops at the first invalid one, and Slurm
// writes NoDevFiles if a step has none.
std::vector<std::string> VisibleEntries(const std::string& visible) {
  std::vector<std::string> entries;
  std::istringstream parts(visible);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    part = part.substr(begin, part.find_last_not_of(' ') - begin + 1);
    if (part.starts_with('-') || part == "NoDevFiles") break;
    entries.push_back(part);
  }
  return entries;
}

std::string Variable(const GpuView& view, const std::string& name) {
  const auto it = view.slurm.find(name);
  return it == view.slurm.end() ? "" : it->second;
}

int Count(const GpuView& view, const std::string& name) {
  return static_cast<int>(ParseNumber(Variable(view, name), 0));
}

std::string Gpus(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
}

std::size_t PermittedCount(const GpuView& view) {
  if (!view.inventory) return view.usable_files.size();
  return static_cast<std::size_t>(std::count_if(view.inventory->gpus.begin(),
                                                view.inventory->gpus.end(),
                                                [](const Gpu& gpu) { return gpu.permitted; }));
}

bool IsNumber(const std::string& entry) {
  return !entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos;
}

using Entries = std::vector<std::string>;  // what the worker was granted
using Problems = std::vector<std::string>;

// Slurm splits a node's GPUs among its tasks if some are requested per task.
void CheckTasks(const GpuView& view, const Entries& entries, Problems* problems) {
  const std::string per_task = Variable(view, "SLURM_GPUS_PER_TASK");
  const int tasks = Count(view, "SLURM_NTASKS_PER_NODE");
  const auto on_node = static_cast<std::size_t>(std::max(0, Count(view, "SLURM_GPUS_ON_NODE")));
  const bool split = !per_task.empty() || tasks > 1;
  if (split && on_node > entries.size()) {
    problems->push_back(
        "Slurm bound " + Gpus(entries.size()) + " of this node's " + std::to_string(on_node) +
        " to this task; ask for --gpus-per-node and one task per node (--ntasks-per-node=1), "
        "without --gpus-per-task");
  } else if (tasks > 1) {
    problems->push_back(
        "Slurm starts " + std::to_string(tasks) +
        " tasks on this node, and each would be a worker with the same GPUs; ask for one task per "
        "node (--ntasks-per-node=1)");
  }
}

// Granted GPUs must exist, and be allowed.
void CheckEntries(const GpuView& view, const Entries& entries, Problems* problems) {
  if (!view.inventory) return;
  for (const std::string& entry : entries) {
    const Gpu* gpu = FindGpu(view.inventory->gpus, entry);
    if (gpu == nullptr) {
      problems->push_back("CUDA_VISIBLE_DEVICES names " + entry + ", but this node shows " +
                          Gpus(view.inventory->gpus.size()) +
                          " and none of them is that; start the worker in the step that "
                          "has the GPUs, with the variable as it is set there");
    } else if (!gpu->permitted && gpu->error == 0) {
      problems->push_back("GPU " + entry +
                          " is named by CUDA_VISIBLE_DEVICES, but the cgroup of this step "
                          "does not allow it; give srun the same --gpus-per-node as the "
                          "job");
    }
  }
}

std::string DoesNotAnswer(const Gpu& gpu) {
  return "does not answer (error " + std::to_string(gpu.error) + " of the management library)";
}

// A GPU that is neither present nor forbidden is broken, and its node runs fewer ranks than it
// should.
void CheckAnswers(const GpuView& view, Problems* problems) {
  if (!view.inventory) return;
  for (const Gpu& gpu : view.inventory->gpus)
    if (gpu.error != 0)
      problems->push_back("GPU " + std::to_string(gpu.index) + " " + DoesNotAnswer(gpu) +
                          "; the kernel's log says why, and a restart of the node often helps");
}

void CheckFiles(const GpuView& view, const Entries& entries, Problems* problems) {
  const std::size_t usable = view.usable_files.size();
  if (!problems->empty() || view.device_files.empty()) return;
  if (usable == 0) {
    problems->push_back(
        "none of the " + Gpus(view.device_files.size()) +
        " of this node can be opened by this process; ask Slurm for GPUs (--gpus-per-node), or "
        "give the container its devices");
  } else if (std::ranges::all_of(entries, IsNumber) && entries.size() > usable) {
    problems->push_back("CUDA_VISIBLE_DEVICES names " + Gpus(entries.size()) + ", but only " +
                        std::to_string(usable) +
                        " can be opened here; give srun the same --gpus-per-node as the job");
  } else if (!view.inventory) {
    problems->push_back(
        "this node has " + Gpus(view.device_files.size()) +
        ", but no GPU management library (libnvidia-ml.so.1): errors of GPUs are not seen; "
        "install the driver's utilities");
  }
}

// In a Slurm job that requested none, visible GPUs belong to another job.
void CheckAskedFor(const GpuView& view, const Entries& entries, Problems* problems) {
  const bool in_slurm = !Variable(view, "SLURM_JOB_ID").empty();
  const bool asked = !Variable(view, "SLURM_STEP_GPUS").empty() ||
                     !Variable(view, "SLURM_JOB_GPUS").empty() ||
                     Count(view, "SLURM_GPUS_ON_NODE") > 0;
  if (!in_slurm || asked || view.visible || entries.empty()) return;
  problems->push_back("Slurm granted no GPUs to this step, yet " + Gpus(entries.size()) +
                      " of the node can be used; ask for --gpus-per-node, or for the whole "
                      "node (--exclusive) where "
                      "your Slurm does not count GPUs");
}

// GPUs become devices by one of these; a device that is there already is left out.
class DeviceList {
 public:
  DeviceList(const GpuView& view, const std::string& node) : view_(view), node_(node) {
    if (view.inventory) domains_ = LinkDomains(view.inventory->gpus, node);
  }

  // What was granted by name.
  void AddEntry(const std::string& entry) {
    const Gpu* gpu = view_.inventory ? FindGpu(view_.inventory->gpus, entry) : nullptr;
    if (gpu == nullptr) {
      NodeDevice unseen{.device = {.id = IdOf(entry)}, .cuda_name = entry, .gpu = entry};
      if (IsNumber(entry)) unseen.gpu_index = static_cast<int>(ParseNumber(entry, -1));
      if (view_.inventory) unseen.device.fault = "this node shows no such GPU";
      return Add(std::move(unseen));
    }
    if (!entry.starts_with("MIG-") || !gpu->permitted) return AddGpu(*gpu);
    for (const GpuPart& part : gpu->parts)
      if (part.uuid.starts_with(entry)) return AddPart(*gpu, part);
    AddPart(*gpu, {.uuid = entry});  // as drivers before 470 name them
  }

  // All of it.
  void AddGpu(const Gpu& gpu) {
    for (const GpuPart& part : gpu.parts) AddPart(gpu, part);
    if (!gpu.parts.empty()) return;
    NodeDevice whole = Of(gpu);
    whole.device.kind = gpu.kind;
    whole.device.memory_bytes = gpu.memory_bytes;
    whole.device.link_domain =
        domains_[static_cast<std::size_t>(&gpu - view_.inventory->gpus.data())];
    if (gpu.error != 0)
      whole.device.fault = "it " + DoesNotAnswer(gpu);
    else if (!gpu.permitted)
      whole.device.fault = "the cgroup of the worker's step does not allow it";
    Add(std::move(whole));
  }

  std::vector<NodeDevice> Take() { return std::move(devices_); }

 private:
  // A GPU without a UUID has its place; what the rule of ids forbids is left out of it.
  std::string IdOf(const std::string& entry) const {
    if (IsNumber(entry)) return node_ + "-gpu" + entry;
    std::string id = entry.substr(0, 64);
    for (char& c : id)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
    return id;
  }
  NodeDevice Of(const Gpu& gpu) const {
    const std::string index = std::to_string(gpu.index);
    const std::string& name = gpu.uuid.empty() ? index : gpu.uuid;
    return {.device = {.id = IdOf(name)},
            .cuda_name = name,
            .gpu = name,
            .gpu_index = gpu.index,
            .pci_address = gpu.pci_address};
  }
  void AddPart(const Gpu& gpu, const GpuPart& part) {
    NodeDevice device = Of(gpu);
    device.cuda_name = part.uuid;
    device.device = {.id = IdOf(part.uuid), .kind = part.kind, .memory_bytes = part.memory_bytes};
    Add(std::move(device));
  }
  void Add(NodeDevice device) {
    if (FindDevice(devices_, device.device.id) == nullptr) devices_.push_back(std::move(device));
  }

  const GpuView& view_;
  const std::string& node_;
  std::vector<std::string> domains_;  // of the inventory's GPUs
  std::vector<NodeDevice> devices_;
};

}  // namespace

GpuBinding CheckGpuBinding(const GpuView& view, const std::string& node) {
  Entries entries;
  DeviceList devices(view, node);
  if (view.visible) {
    entries = VisibleEntries(*view.visible);
  } else if (view.inventory) {
    for (const Gpu& gpu : view.inventory->gpus) {
      if (gpu.permitted) entries.push_back(std::to_string(gpu.index));
      if (gpu.permitted || gpu.error != 0) devices.AddGpu(gpu);
    }
  } else {
    entries = view.usable_files;
  }
  if (view.visible || !view.inventory)
    for (const std::string& entry : entries) devices.AddEntry(entry);
  GpuBinding binding{.devices = devices.Take()};
  Problems* const problems = &binding.problems;
  CheckAnswers(view, problems);
  if (entries.empty() && PermittedCount(view) == 0 && view.device_files.empty()) return binding;
  CheckTasks(view, entries, problems);
  CheckEntries(view, entries, problems);
  CheckAskedFor(view, entries, problems);
  if (!entries.empty()) CheckFiles(view, entries, problems);
  return binding;
}

GpuView LookAtGpus(const char* const* environment, const std::string& nvml_library,
                   const std::string& root) {
  GpuView view;
  for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = std::min(text.find('='), text.size() - 1);
    const std::string name(text.substr(0, equals));
    const std::string value(text.substr(equals + 1));
    if (name == "CUDA_VISIBLE_DEVICES") view.visible = value;
    if (name.starts_with("SLURM_")) view.slurm[name] = value;
  }
  for (const fs::path& file : SortedEntries(fs::path(root) / "dev")) {
    const std::string name = file.filename().string();
    const std::string number = name.starts_with("nvidia") ? name.substr(6) : "";
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    view.device_files.push_back(number);
    // The cgroup is checked only when the device is opened.
    if (UniqueFd(::open(file.c_str(), O_RDWR | O_CLOEXEC)).valid())
      view.usable_files.push_back(number);
  }
  if (auto inventory = ReadGpuInventory(nvml_library); !nvml_library.empty() && inventory.ok())
    view.inventory = *std::move(inventory);
  return view;
}

}  // namespace muster::worker
