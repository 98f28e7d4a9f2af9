#include "common/job_spec/container_block.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace muster {
namespace {

namespace fs = std::filesystem;

// Absolute, without "..", and not the root itself.
bool IsPlace(const std::string& path) {
  const fs::path place(path);
  return path.size() > 1 && path.front() == '/' && place.lexically_normal() != "/" &&
         std::find(place.begin(), place.end(), "..") == place.end();
}

std::string Normal(const std::string& path) {
  std::string normal = fs::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Why podman cannot know an image by that name; empty: it can.
std::string WhyNoReference(const std::string& image) {
  if (image.starts_with(".") || image.starts_with("~"))
    return "expected an image's name or the absolute path of an unpacked root, got '" + image + "'";
  if (image.find("://") != std::string::npos)
    return "leave the scheme out: images are named as in `podman images`";
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";
  if (image.find_first_not_of(kAllowed) != std::string::npos || image.front() == '-')
    return "is no name of an image, such as docker.io/pytorch/pytorch:2.11.0";
  return "";
}

// "SOURCE[:TARGET][:ro]"; empty source: it is none.
ContainerMount ParseMount(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  ContainerMount mount;
  if (parts.size() > 1 && (parts.back() == "ro" || parts.back() == "rw")) {
    mount.read_only = parts.back() == "ro";
    parts.pop_back();
  }
  if (parts.size() > 2 || !IsPlace(parts.front()) || !IsPlace(parts.back())) return {};
  mount.source = Normal(parts.front());
  mount.target = Normal(parts.back());
  return mount;
}

}  // namespace

void ReadContainer(MapReader& file, ContainerSpec* out) {
  auto map = file.Map("container");
  if (!map) return;
  map->Require("image", "name the image, or give the absolute path of an unpacked root");
  map->Text("image", &out->image);
  if (!out->image.empty() && out->image.front() == '/') {
    if (!IsPlace(out->image)) map->Error("image", "is not the path of an unpacked root");
    out->image = Normal(out->image);
  } else if (!out->image.empty()) {
    if (const std::string why = WhyNoReference(out->image); !why.empty()) map->Error("image", why);
  }
  std::vector<std::string> mounts;
  map->TextList("mounts", &mounts);
  for (const std::string& text : mounts) {
    const ContainerMount mount = ParseMount(text);
    const bool twice = std::ranges::any_of(
        out->mounts, [&](const ContainerMount& other) { return other.target == mount.target; });
    if (mount.source.empty())
      map->Error("mounts", "expected SOURCE[:TARGET][:ro] of absolute paths, got '" + text + "'");
    else if (twice)
      map->Error("mounts", "two mounts at " + mount.target);
    else
      out->mounts.push_back(mount);
  }
  map->Finish();
}

}  // namespace muster
