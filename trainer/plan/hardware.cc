#include "trainer/plan/hardware.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace muster {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kGB = 1e9;

// The second field has parts of the name that the device reports, all of which it must contain.
struct Device {
  std::string_view name;
  std::array<std::string_view, 2> told;
  double memory_gib;  // as nvidia-smi shows it
  double tflops;
  double achievable;
  double memory_gb_s;
  double link_gb_s;
  double host_gb_s;
  std::string_view source;
};

// The larger of two devices whose names contain one another comes first. Shares: torchtitan on A100
// and H100, KempnerForge on H200, llmq on RTX 4090 (executed operations over the peak); those of
// the others are taken from the nearest of these.
constexpr Device kDevices[] = {
    {"A100-80", {"A100", "80GB"}, 79.2, 312, 0.58, 2039, 300, 25, "NVIDIA A100 data sheet"},
    {"A100-40", {"A100", ""}, 39.4, 312, 0.58, 1555, 300, 25, "NVIDIA A100 data sheet"},
    {"H200", {"H200", ""}, 139.8, 989, 0.60, 4800, 450, 50, "NVIDIA H200 data sheet"},
    {"H100-80", {"H100", ""}, 79.1, 989, 0.42, 3350, 450, 50, "NVIDIA H100 data sheet"},
    {"L40S", {"L40S", ""}, 44.5, 362, 0.50, 864, 25, 25, "NVIDIA L40S data sheet"},
    {"A10", {"A10", ""}, 22.0, 125, 0.50, 600, 22, 22, "NVIDIA A10 data sheet"},
    {"RTX-4090", {"RTX 4090", ""}, 23.5, 165, 0.70, 1008, 22, 22, "NVIDIA Ada whitepaper"},
    {"RTX-3090", {"RTX 3090", ""}, 23.5, 71, 0.70, 936, 22, 22, "NVIDIA Ampere whitepaper"},
};

// The default for a node of GPUs: one network card of 400 Gb/s.
constexpr double kNetwork = 45 * kGB;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

Hardware HardwareOf(const Device& device) {
  return {.name = std::string(device.name),
          .source = std::string(device.source) + ", dense bf16",
          .memory_bytes = device.memory_gib * kGiB,
          .peak_tflops = device.tflops,
          .achievable = device.achievable,
          .memory_rate = device.memory_gb_s * kGB,
          .link_rate = device.link_gb_s * kGB,
          .host_rate = device.host_gb_s * kGB,
          .network_rate = kNetwork};
}

}  // namespace

std::vector<std::string> KnownDevices() {
  std::vector<std::string> names;
  for (const Device& device : kDevices) names.emplace_back(device.name);
  return names;
}

std::optional<Hardware> FindHardware(std::string_view name) {
  for (const Device& device : kDevices)
    if (Lower(device.name) == Lower(name)) return HardwareOf(device);
  return std::nullopt;
}

std::optional<Hardware> FindByDeviceName(std::string_view name) {
  for (const Device& device : kDevices) {
    const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
    // "A10" is part of "A100" too.
    if (device.name == "A10" && has("A100")) continue;
    if (has(device.told[0]) && has(device.told[1])) return HardwareOf(device);
  }
  return std::nullopt;
}

}  // namespace muster
