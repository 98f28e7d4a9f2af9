// Reading the kernel's tree of devices: an attribute is a small file, a missing one is empty.
// Free functions over the file system; any thread.
#pragma once

#include <charconv>
#include <filesystem>
#include <string>
#include <vector>

namespace muster::worker {

// The text without its line end; empty if it cannot be read, which some drivers use for unknown
// values.
std::string ReadSysfs(const std::filesystem::path& path);

// The entries of a directory by name, numbers in them by value: mlx5_2 before mlx5_10.
std::vector<std::filesystem::path> SortedEntries(const std::filesystem::path& directory);

// "0000:3b:00.0" for a link to a PCI device; empty for another kind of device.
std::string PciAddress(const std::filesystem::path& device_link);

// Decimal; `otherwise` if the text does not begin with a number.
inline long long ParseNumber(const std::string& text, long long otherwise) {
  long long value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace muster::worker
