#include "worker/fabric/sysfs.h"

#include <algorithm>
#include <cctype>

#include "common/base/files.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxAttributeBytes = 64 << 10;

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

bool NaturalLess(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    std::size_t a_end = i, b_end = j;
    while (a_end < a.size() && IsDigit(a[a_end])) ++a_end;
    while (b_end < b.size() && IsDigit(b[b_end])) ++b_end;
    // Leading zeros ("0000:3b") keep their width, so that longer is larger only without them.
    const std::string left = a.substr(i, a_end - i), right = b.substr(j, b_end - j);
    if (left.size() != right.size()) return left.size() < right.size();
    if (left != right) return left < right;
    i = a_end, j = b_end;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::string ReadSysfs(const fs::path& path) {
  auto text = ReadFile(path.string(), kMaxAttributeBytes);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

std::vector<fs::path> SortedEntries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end(), [](const fs::path& a, const fs::path& b) {
    return NaturalLess(a.filename().string(), b.filename().string());
  });
  return entries;
}

std::string PciAddress(const fs::path& device_link) {
  std::error_code error;
  const fs::path device = fs::canonical(device_link, error);
  if (error) return "";
  const std::string name = device.filename().string();
  return std::count(name.begin(), name.end(), ':') == 2 ? name : "";
}

}  // namespace muster::worker
