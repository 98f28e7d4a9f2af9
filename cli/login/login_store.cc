#include "cli/login/login_store.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/security/identity.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

struct Field {
  const char* name;
  std::string Login::*value;
};
constexpr Field kFields[] = {{"cluster", &Login::cluster},
                             {"user", &Login::user},
                             {"address", &Login::address},
                             {"coordinator", &Login::coordinator},
                             {"issuer", &Login::issuer},
                             {"client_id", &Login::client_id},
                             {"token_endpoint", &Login::token_endpoint},
                             {"revocation_endpoint", &Login::revocation_endpoint},
                             {"issuer_ca_pem", &Login::issuer_ca_pem},
                             {"refresh_token", &Login::refresh_token}};

constexpr char kPlaceField[] = "refresh_token_in";
constexpr char kOthersField[] = "others";
constexpr char kInKeyring[] = "keyring";

std::string FileOf(const std::string& dir) { return dir + "/login.json"; }

Status NoKeyring() { return Unavailable("this session has no keyring"); }

Status Delete(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove " + path) : OkStatus();
}

}  // namespace

Result<LoginStore> LoginStore::OfUser() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  fs::path below;
  if (config && fs::path(config).is_absolute())
    below = config;
  else if (home && *home)
    below = fs::path(home) / ".config";
  else
    return FailedPrecondition("logins are kept below XDG_CONFIG_HOME or HOME; set one of them");
  return LoginStore(below / "muster" / "clusters", Keyring::OfSession());
}

Result<std::string> LoginStore::Current() const {
  const auto text = ReadPrivateFile(root_ + "/.current", Privacy::kTrusted);
  if (!text.ok()) return text.status();
  const std::string name = text->substr(0, text->find('\n'));
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", name));
  return name;
}

Result<Login> LoginStore::Load(const std::string& cluster) const {
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", cluster));
  const std::string path = FileOf(DirOf(cluster));
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadPrivateFile(path, Privacy::kSecret));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Login login;
  for (const Field& field : kFields) {
    if (!json.is_object() || !json.contains(field.name) || !json[field.name].is_string())
      return DataLoss(path + " has no text '" + field.name + "'\n  next: muster logout");
    login.*field.value = json[field.name].get<std::string>();
  }
  // Logins from before there were several coordinators, or keyrings, have no such fields.
  if (const auto others = json.find(kOthersField); others != json.end() && others->is_string())
    login.others = others->get<std::string>();
  const auto place = json.find(kPlaceField);
  if (place != json.end() && *place == kInKeyring) login.place = TokenPlace::kKeyring;
  return login;
}

Status LoginStore::Save(Login* login) const {
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", login->cluster));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(root_));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(DirOf(login->cluster)));
  if (login->place == TokenPlace::kFile) {
    (void)RemoveFromKeyring(login->cluster);  // what it keeps then is worth nothing
  } else if (!login->refresh_token.empty()) {
    const Status stored =
        keyring_ ? keyring_->Store(EntryOf(login->cluster), login->refresh_token) : NoKeyring();
    if (stored.ok()) login->refresh_token.clear();
    if (!stored.ok()) login->place = TokenPlace::kFile;
    login->why_in_file = stored.message();
  }
  nlohmann::ordered_json json;
  for (const Field& field : kFields) json[field.name] = login->*field.value;
  json[kOthersField] = login->others;
  json[kPlaceField] = login->place == TokenPlace::kKeyring ? kInKeyring : "file";
  return WritePrivateFile(FileOf(DirOf(login->cluster)), json.dump(1) + "\n", Privacy::kSecret);
}

Result<std::string> LoginStore::RefreshToken(const Login& login) const {
  if (login.place == TokenPlace::kFile) return login.refresh_token;
  const Result<std::string> found =
      keyring_ ? keyring_->Lookup(EntryOf(login.cluster)) : Result<std::string>(NoKeyring());
  if (found.ok()) return found;
  return Unavailable("its refresh token is in the keyring: " + found.status().message() +
                     "\n  next: muster login, with --insecure-storage to keep it in a file");
}

Status LoginStore::RemoveFromKeyring(const std::string& cluster) const {
  const auto login = Load(cluster);
  if (!login.ok() || login->place == TokenPlace::kFile) return OkStatus();
  return keyring_ ? keyring_->Remove(EntryOf(cluster)) : NoKeyring();
}

Status LoginStore::MakeCurrent(const std::string& cluster) const {
  return WritePrivateFile(root_ + "/.current", cluster + "\n", Privacy::kTrusted);
}

Status LoginStore::End(Login login) const {
  login.refresh_token.clear();
  login.place = TokenPlace::kFile;
  MUSTER_RETURN_IF_ERROR(Save(&login));
  for (const char* name : {"/key.pem", "/cert.pem", "/replacement.json"})
    MUSTER_RETURN_IF_ERROR(Delete(DirOf(login.cluster) + name));
  return OkStatus();
}

Status LoginStore::Remove(const std::string& cluster) const {
  const auto current = Current();
  if (current.ok() && *current == cluster) MUSTER_RETURN_IF_ERROR(Delete(root_ + "/.current"));
  return Delete(DirOf(cluster));
}

}  // namespace muster
