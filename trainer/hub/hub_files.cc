#include "trainer/hub/hub_files.h"

#include <fnmatch.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace muster {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

bool Matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool MatchesAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return Matches(pattern, name); });
}

bool IsModelFile(const std::string& name) {
  static const std::vector<std::string> kinds = {"*.json", "*.jinja", "*.model", "*.txt",
                                                 "*.tiktoken"};
  return name.find('/') == std::string::npos && MatchesAny(kinds, name);
}

// Those in folders (original/, onnx/) are the same weights again in another format.
bool IsSafetensors(const std::string& name) {
  return name.find('/') == std::string::npos && Matches("*.safetensors", name);
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

std::vector<std::string> WantedFiles(const std::vector<std::string>& all,
                                     const std::vector<std::string>& include) {
  std::vector<std::string> wanted;
  for (const std::string& name : all) {
    const bool is_wanted =
        include.empty() ? IsModelFile(name) || IsSafetensors(name) : MatchesAny(include, name);
    // The index of weights that are left out would be taken for that of those that are there.
    const bool is_stray_index = include.empty() && Matches("*.bin.index.json", name);
    if (is_wanted && !is_stray_index) wanted.push_back(name);
  }
  return wanted;
}

bool HasSafetensors(const std::vector<std::string>& all) {
  return std::any_of(all.begin(), all.end(), IsSafetensors);
}

bool IsSafeFileName(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.size() > 1024) return false;
  std::string part;
  for (const char c : std::string(name) + "/") {
    if (c == '\0' || c == '\\' || static_cast<unsigned char>(c) < ' ') return false;
    if (c != '/') {
      part += c;
      continue;
    }
    if (part.empty() || part == "." || part == "..") return false;
    part.clear();
  }
  return true;
}

std::string NormalizedEtag(std::string_view header) {
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.starts_with('"')) header.remove_prefix(1);
  if (header.ends_with('"')) header.remove_suffix(1);
  const bool is_name = std::all_of(header.begin(), header.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (!is_name || header.size() > 200 || header.starts_with('.')) return {};
  return std::string(header);
}

struct ContentCheck::State {
  std::string etag;
  EVP_MD_CTX* context = nullptr;  // none: the ETag says nothing of the contents
  ~State() { EVP_MD_CTX_free(context); }
};

ContentCheck::ContentCheck(std::string etag, std::int64_t size) : state_(new State) {
  state_->etag = std::move(etag);
  if (!IsHex(state_->etag)) return;
  const bool is_git = state_->etag.size() == 40;
  if (!is_git && state_->etag.size() != 64) return;
  if (is_git && size < 0) return;
  state_->context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(state_->context, is_git ? EVP_sha1() : EVP_sha256(), nullptr);
  if (is_git) {
    const std::string header = "blob " + std::to_string(size);
    Add(std::string_view(header.c_str(), header.size() + 1));
  }
}

ContentCheck::~ContentCheck() = default;
ContentCheck::ContentCheck(ContentCheck&&) noexcept = default;
ContentCheck& ContentCheck::operator=(ContentCheck&&) noexcept = default;

void ContentCheck::Add(std::string_view bytes) {
  if (state_->context != nullptr) {
    EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
  }
}

Status ContentCheck::AddFile(const std::string& path, std::int64_t count) {
  if (state_->context == nullptr) return OkStatus();
  std::ifstream file(path, std::ios::binary);
  std::string buffer(kReadBytes, '\0');
  while (count > 0) {
    const auto part = std::min<std::int64_t>(count, static_cast<std::int64_t>(buffer.size()));
    if (!file.read(buffer.data(), part)) return DataLoss(path + " cannot be read");
    Add(std::string_view(buffer.data(), static_cast<std::size_t>(part)));
    count -= part;
  }
  return OkStatus();
}

bool ContentCheck::Matches() {
  if (state_->context == nullptr) return true;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text == state_->etag;
}

}  // namespace muster
