// The few declarations of NVIDIA's management library that NvmlWatch, GpuReader and
// ReadGpuInventory call, so that neither its header nor the library is needed to build. Names and
// layouts are the library's own and fixed.
#pragma once

namespace muster::worker::nvml {

using Device = void*;
using EventSet = void*;
using Return = int;

inline constexpr Return kSuccess = 0;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kTimeout = 10;
inline constexpr unsigned long long kXidCriticalError = 0x8;
inline constexpr unsigned kRecoveryActionField = 230;

struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;  // the Xid
  unsigned gpu_instance;
  unsigned compute_instance;
};

union Value {
  double as_double;
  unsigned as_unsigned;
  unsigned long long as_unsigned_long_long;
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_microseconds;
  int value_type;
  Return status;
  Value value;
};

inline constexpr unsigned char kFabricCompleted = 3;

// nvmlPciInfo_t.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];  // "00000000:3B:00.0"
};

// nvmlGpuFabricInfo_t.
struct GpuFabricInfo {
  unsigned char cluster_uuid[16];
  Return status;
  unsigned clique_id;
  unsigned char state;
};

// nvmlUtilization_t, in per cent.
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

// nvmlMemory_t, in bytes.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

inline constexpr int kTemperatureOfGpu = 0;
inline constexpr int kClockOfMultiprocessors = 1;

using Init = Return (*)();
using Shutdown = Return (*)();
using DeviceCount = Return (*)(unsigned* count);
using DeviceByIndex = Return (*)(unsigned index, Device* device);
using EventSetCreate = Return (*)(EventSet* set);
using EventSetFree = Return (*)(EventSet set);
using EventSetWait = Return (*)(EventSet set, EventData* data, unsigned milliseconds);
using RegisterEvents = Return (*)(Device device, unsigned long long types, EventSet set);
using DeviceText = Return (*)(Device device, char* text, unsigned length);  // UUID, name
using DevicePciInfo = Return (*)(Device device, PciInfo* info);
using NvlinkState = Return (*)(Device device, unsigned link, unsigned* active);
using NvlinkPeer = Return (*)(Device device, unsigned link, PciInfo* peer);
using FabricInfo = Return (*)(Device device, GpuFabricInfo* info);
using MaxMigDevices = Return (*)(Device device, unsigned* count);
using MigDeviceByIndex = Return (*)(Device device, unsigned index, Device* part);
using UtilizationRates = Return (*)(Device device, Utilization* rates);
using MemoryInfo = Return (*)(Device device, Memory* memory);
using PowerUsage = Return (*)(Device device, unsigned* milliwatts);
using Temperature = Return (*)(Device device, int sensor, unsigned* celsius);
using ClockInfo = Return (*)(Device device, int clock, unsigned* megahertz);
using FieldValues = Return (*)(Device device, int count, FieldValue* values);

}  // namespace muster::worker::nvml
