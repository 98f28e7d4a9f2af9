// muster-trainer: opens the trainer and LibTorch, or says how to get the LibTorch that it needs.
#include <dlfcn.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "common/control_pipe/packet_socket.h"
#include "common/control_pipe/trainer_protocol.h"

namespace {

using TrainerMain = int (*)(int, char**);
using TorchBuildOptions = const std::map<std::string, std::string>& (*)();

// "2.11" of "2.11.0": what LibTorch's headers have inline changes from one to the next.
std::string_view MinorVersion(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// A rank's output goes to its log, which the guardian hands over with the assignment.
void OpenRankLog() {
  const char* const control = std::getenv(muster::kControlFdVariable);
  if (control == nullptr || std::getenv(muster::kAssignVariable) == nullptr) return;
  muster::PacketSocket guardian(muster::UniqueFd(std::atoi(control)));
  const muster::Deadline deadline = muster::Deadline::After(std::chrono::seconds(10));
  for (;;) {
    const muster::Result<muster::Packet> packet = guardian.Receive(deadline);
    if (!packet.ok()) return;
    if (packet->data.find("[\"log\"") == std::string::npos || packet->fds.empty()) continue;
    ::dup2(packet->fds.front().get(), STDERR_FILENO);
    return;
  }
}

int Refuse(const char* why, const char* detail = "") {
  OpenRankLog();
  const std::string_view needed = MinorVersion(TORCH_VERSION);
  const int length = static_cast<int>(needed.size());
  std::fprintf(stderr,
               "muster-trainer: needs LibTorch %.*s, but %s%s.\n"
               "In the Python environment that Muster is installed in, run\n"
               "  python3 -m pip install 'torch==%.*s.*'\n"
               "and add --force-reinstall if that finds nothing to do. Debian's muster-trainer\n"
               "looks in /etc/muster/torch, a link to the folder torch of such an environment.\n",
               length, needed.data(), why, detail, length, needed.data());
  return muster::kExitBadInput;
}

// The file that is mapped at an address; empty: none.
std::string FileAt(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) != 2 || wanted < first || wanted >= end)
      continue;
    const std::size_t slash = line.find('/');
    return slash == std::string::npos ? "" : line.substr(slash);
  }
  return "";
}

// The dynamic linker reads pages that a library does not have when its file was cut off.
void RefuseDamaged(int, siginfo_t* info, void*) {
  const std::string file = FileAt(info->si_addr);
  const bool is_ours = file.ends_with("/libmuster_trainer.so") ||
                       file.find("/muster_training.libs/") != std::string::npos;
  if (!is_ours) ::_exit(Refuse("the one that is installed is damaged"));
  OpenRankLog();
  std::fprintf(
      stderr,
      "muster-trainer: %s is damaged.\n"
      "Install Muster again (pip install --force-reinstall, or apt install --reinstall).\n",
      file.c_str());
  ::_exit(muster::kExitBadInput);
}

void CatchDamage(bool on) {
  struct sigaction action {};
  if (on) action.sa_sigaction = RefuseDamaged;
  action.sa_flags = on ? SA_SIGINFO : 0;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  CatchDamage(true);
  void* const trainer = ::dlopen("libmuster_trainer.so", RTLD_LAZY | RTLD_LOCAL);
  CatchDamage(false);
  if (trainer == nullptr) return Refuse("it cannot be loaded: ", ::dlerror());
  // caffe2::GetBuildOptions(), by the name that it has in the C++ ABI that the trainer is built
  // for.
  const auto options =
      reinterpret_cast<TorchBuildOptions>(::dlsym(trainer, "_ZN6caffe215GetBuildOptionsB5cxx11Ev"));
  if (options == nullptr) return Refuse("the one that is installed does not name its version");
  const std::string& installed = options().at("TORCH_VERSION");
  if (MinorVersion(installed) != MinorVersion(TORCH_VERSION))
    return Refuse(installed.c_str(), " is installed");
  return reinterpret_cast<TrainerMain>(::dlsym(trainer, "MusterTrainerMain"))(argc, argv);
}
