#include "cli/login/login_store.h"

#include <cstdlib>
#include <filesystem>

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

std::string FileOf(const std::string& dir) { return dir + "/login.json"; }

Status Delete(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove " + path) : OkStatus();
}

}  // namespace

std::string LoginStore::RootOfUser() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config && fs::path(config).is_absolute()) return fs::path(config) / "muster" / "clusters";
  return home && *home ? fs::path(home) / ".config" / "muster" / "clusters" : fs::path();
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
  return login;
}

Status LoginStore::Save(const Login& login) const {
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", login.cluster));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(root_));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(DirOf(login.cluster)));
  nlohmann::ordered_json json;
  for (const Field& field : kFields) json[field.name] = login.*field.value;
  return WritePrivateFile(FileOf(DirOf(login.cluster)), json.dump(1) + "\n", Privacy::kSecret);
}

Status LoginStore::MakeCurrent(const std::string& cluster) const {
  return WritePrivateFile(root_ + "/.current", cluster + "\n", Privacy::kTrusted);
}

Status LoginStore::End(Login login) const {
  login.refresh_token.clear();
  MUSTER_RETURN_IF_ERROR(Save(login));
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
