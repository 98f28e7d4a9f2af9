#include "common/security/issued_register.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "common/security/encoding.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

// From then on expired entries are looked for whenever one is added.
constexpr std::size_t kLargeBytes = 1 << 20;

std::string Line(const CertificateInfo& certificate) {
  const nlohmann::ordered_json json = {{"serial", certificate.serial},
                                       {"identity", IdentityUri(certificate.identity)},
                                       {"issued_ms", certificate.issued_ms},
                                       {"not_after_ms", certificate.not_after_ms}};
  return json.dump() + "\n";
}

Result<CertificateInfo> ParseLine(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto is = [&](const char* key, auto check) {
    return json.contains(key) && (json[key].*check)();
  };
  if (!json.is_object() || !is("serial", &nlohmann::json::is_string) ||
      !is("identity", &nlohmann::json::is_string) ||
      !is("issued_ms", &nlohmann::json::is_number_integer) ||
      !is("not_after_ms", &nlohmann::json::is_number_integer))
    return DataLoss("is not {\"serial\", \"identity\", \"issued_ms\", \"not_after_ms\"}");
  CertificateInfo info;
  info.serial = json["serial"];
  if (!IsHex(info.serial, 32)) return DataLoss("has a serial that is not 32 hexadecimal digits");
  MUSTER_ASSIGN_OR_RETURN(info.identity, ParseIdentityUri(json["identity"].get<std::string>()));
  info.issued_ms = json["issued_ms"];
  info.not_after_ms = json["not_after_ms"];
  return info;
}

// Whole lines only: what follows the last line feed was cut by a crash, before its certificate was
// handed out.
std::size_t WholeLines(std::string_view content) {
  const std::size_t end = content.rfind('\n');
  return end == content.npos ? 0 : end + 1;
}

Result<std::vector<CertificateInfo>> Parse(const std::string& path, std::string_view content) {
  std::vector<CertificateInfo> entries;
  content = content.substr(0, WholeLines(content));
  for (int number = 1; !content.empty(); ++number) {
    const std::size_t end = content.find('\n');
    auto entry = ParseLine(content.substr(0, end));
    if (!entry.ok())
      return DataLoss(path + ":" + std::to_string(number) + " " + entry.status().message() +
                      "; remove the line, or put the file back from a backup");
    entries.push_back(*std::move(entry));
    content.remove_prefix(end + 1);
  }
  return entries;
}

Result<std::string> Content(const std::string& path) {
  auto content = ReadPrivateFile(path, Privacy::kTrusted);
  if (content.status().code() == StatusCode::kNotFound) return std::string();
  return content;
}

// Those that the register does not have yet.
std::string NewLines(std::span<const CertificateInfo> certificates, std::string_view whole) {
  std::string lines;
  for (const CertificateInfo& certificate : certificates)
    if (whole.find('"' + certificate.serial + '"') == whole.npos) lines += Line(certificate);
  return lines;
}

Status Append(const std::string& path, std::string_view whole, const std::string& lines) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  // Removes the line that a crash has cut.
  if (::ftruncate(fd.get(), static_cast<off_t>(whole.size())) != 0)
    return ErrnoStatus(errno, "cut " + path);
  const ssize_t n = ::write(fd.get(), lines.data(), lines.size());
  if (n < 0) return ErrnoStatus(errno, "write " + path);
  if (static_cast<std::size_t>(n) != lines.size())
    return ResourceExhausted("the disk is full: write " + path);
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "fdatasync " + path);
  return OkStatus();
}

}  // namespace

Status RecordIssued(const std::string& path, std::span<const CertificateInfo> certificates,
                    std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock,
                          LockDirectory(std::filesystem::path(path).parent_path().string()));
  MUSTER_ASSIGN_OR_RETURN(const std::string content, Content(path));
  const std::string_view whole = std::string_view(content).substr(0, WholeLines(content));
  const std::string lines = NewLines(certificates, whole);
  if (lines.empty()) return OkStatus();
  if (content.size() < kLargeBytes) return Append(path, whole, lines);
  MUSTER_ASSIGN_OR_RETURN(const auto entries, Parse(path, content));
  std::string kept;
  for (const CertificateInfo& entry : entries)
    if (entry.not_after_ms > now_ms) kept += Line(entry);
  // A file that is mostly good is not written anew each time.
  if (kept.size() > whole.size() / 2) return Append(path, whole, lines);
  return WritePrivateFile(path, kept + lines, Privacy::kSecret);
}

Result<std::vector<CertificateInfo>> ReadIssued(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string content, Content(path));
  return Parse(path, content);
}

}  // namespace muster
