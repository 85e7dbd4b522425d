// An OpenCL runtime for the apache-tvm wheel, small enough for a test set-up.
//
// The wheel generates OpenCL kernels but cannot run them: on a phone TVM's RPC app brings that
// part. Here this library does, loaded into the RPC server, on any OpenCL driver (PoCL in CI).
// It has what a compiled Relax model asks for: buffers, copies, and 1-D to 3-D kernel launches.
// No images, no profiling, one in-order queue a device.

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace seqto_opencl {

namespace ffi = tvm::ffi;
using tvm::Device;
using tvm::runtime::DeviceAttrKind;

void Expect(cl_int status, const char* what) {
  if (status != CL_SUCCESS) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: " << what << " gave status " << status;
  }
}

// ---------------------------------------------------------------------------------- devices

struct Driver {
  cl_context context = nullptr;
  std::vector<cl_device_id> devices;
  std::vector<cl_command_queue> queues;

  // Opened on first use, never closed: kernels may still be released while the process ends.
  static Driver& Instance() {
    static Driver* driver = new Driver;
    return *driver;
  }

  cl_command_queue Queue(int index) const { return queues[Checked(index)]; }
  cl_device_id Id(int index) const { return devices[Checked(index)]; }
  bool Has(int index) const { return 0 <= index && index < static_cast<int>(devices.size()); }

 private:
  Driver() {
    cl_uint platforms = 0;
    // The loader reports "no platform" as an error; for us it is a machine without devices.
    if (clGetPlatformIDs(0, nullptr, &platforms) != CL_SUCCESS) return;
    std::vector<cl_platform_id> all(platforms);
    clGetPlatformIDs(platforms, all.data(), nullptr);
    const cl_device_type wanted[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL};
    for (cl_device_type type : wanted) {
      for (cl_platform_id platform : all) {
        if (Open(platform, type)) return;
      }
    }
  }

  bool Open(cl_platform_id platform, cl_device_type type) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, type, 0, nullptr, &count) != CL_SUCCESS || count == 0) return false;
    devices.resize(count);
    Expect(clGetDeviceIDs(platform, type, count, devices.data(), nullptr), "clGetDeviceIDs");
    cl_int status = CL_SUCCESS;
    context = clCreateContext(nullptr, count, devices.data(), nullptr, nullptr, &status);
    Expect(status, "clCreateContext");
    for (cl_device_id device : devices) {
      queues.push_back(clCreateCommandQueue(context, device, 0, &status));
      Expect(status, "clCreateCommandQueue");
    }
    return true;
  }

  size_t Checked(int index) const {
    if (!Has(index)) TVM_FFI_THROW(RuntimeError) << "OpenCL: there is no device " << index;
    return static_cast<size_t>(index);
  }
};

thread_local int current_device = 0;

template <typename Number>
int64_t Ask(cl_device_id device, cl_device_info what) {
  Number answer{};
  Expect(clGetDeviceInfo(device, what, sizeof(answer), &answer, nullptr), "clGetDeviceInfo");
  return static_cast<int64_t>(answer);
}

std::string AskText(cl_device_id device, cl_device_info what) {
  size_t length = 0;
  Expect(clGetDeviceInfo(device, what, 0, nullptr, &length), "clGetDeviceInfo");
  std::string text(length, '\0');
  Expect(clGetDeviceInfo(device, what, length, text.data(), nullptr), "clGetDeviceInfo");
  return text.c_str();  // without the terminating zero that OpenCL counts
}

// ----------------------------------------------------------------------------------- memory

class Memory final : public tvm::runtime::DeviceAPI {
 public:
  static Memory* Instance() {
    static Memory* memory = new Memory;
    return memory;
  }

  void SetDevice(Device device) final { current_device = device.device_id; }

  void GetAttr(Device device, DeviceAttrKind kind, ffi::Any* answer) final {
    Driver& driver = Driver::Instance();
    if (kind == tvm::runtime::kExist) {
      *answer = static_cast<int64_t>(driver.Has(device.device_id));
      return;
    }
    cl_device_id id = driver.Id(device.device_id);
    switch (kind) {
      case tvm::runtime::kMaxThreadsPerBlock:
        *answer = Ask<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
        return;
      case tvm::runtime::kMaxSharedMemoryPerBlock:
        *answer = Ask<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
        return;
      case tvm::runtime::kTotalGlobalMemory:
        *answer = Ask<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
        return;
      case tvm::runtime::kMultiProcessorCount:
        *answer = Ask<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
        return;
      case tvm::runtime::kWarpSize:
        *answer = static_cast<int64_t>(1);
        return;
      case tvm::runtime::kDeviceName:
        *answer = ffi::String(AskText(id, CL_DEVICE_NAME));
        return;
      case tvm::runtime::kDriverVersion:
        *answer = ffi::String(AskText(id, CL_DRIVER_VERSION));
        return;
      default:
        return;  // unknown to us: the answer stays empty, as TVM's own runtimes leave it
    }
  }

  void* AllocDataSpace(Device, size_t bytes, size_t /*alignment*/, DLDataType) final {
    cl_int status = CL_SUCCESS;
    const size_t at_least_one = bytes == 0 ? 1 : bytes;  // an empty buffer is an error in OpenCL
    cl_mem buffer = clCreateBuffer(Driver::Instance().context, CL_MEM_READ_WRITE, at_least_one,
                                   nullptr, &status);
    Expect(status, "clCreateBuffer");
    return buffer;
  }

  void FreeDataSpace(Device device, void* buffer) final {
    // Kernels are only enqueued, so one that uses this buffer may not have run yet.
    Expect(clFinish(Driver::Instance().Queue(device.device_id)), "clFinish");
    Expect(clReleaseMemObject(static_cast<cl_mem>(buffer)), "clReleaseMemObject");
  }

  void StreamSync(Device device, TVMStreamHandle) final {
    Expect(clFinish(Driver::Instance().Queue(device.device_id)), "clFinish");
  }

 protected:
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset,
                      size_t bytes, Device source, Device target, DLDataType,
                      TVMStreamHandle) final {
    if (bytes == 0) return;
    const bool reads = source.device_type == kDLOpenCL;
    const bool writes = target.device_type == kDLOpenCL;
    cl_command_queue queue = Driver::Instance().Queue((reads ? source : target).device_id);
    cl_mem read = reads ? static_cast<cl_mem>(const_cast<void*>(from)) : nullptr;
    cl_mem written = writes ? static_cast<cl_mem>(to) : nullptr;
    if (reads && writes) {
      Expect(clEnqueueCopyBuffer(queue, read, written, from_offset, to_offset, bytes, 0, nullptr,
                                 nullptr),
             "clEnqueueCopyBuffer");
    } else if (reads) {
      Expect(clEnqueueReadBuffer(queue, read, CL_TRUE, from_offset, bytes,
                                 static_cast<char*>(to) + to_offset, 0, nullptr, nullptr),
             "clEnqueueReadBuffer");
    } else {
      Expect(clEnqueueWriteBuffer(queue, written, CL_TRUE, to_offset, bytes,
                                  static_cast<const char*>(from) + from_offset, 0, nullptr,
                                  nullptr),
             "clEnqueueWriteBuffer");
    }
  }
};

// ---------------------------------------------------------------------------------- kernels

// How the arguments of one kernel arrive: first its own, then the launch extents.
struct Signature {
  std::vector<DLDataType> arguments;
  std::vector<std::string> extents;  // blockIdx.x … threadIdx.z, in the order they are passed

  static Signature Of(std::vector<DLDataType> arguments, std::vector<std::string> extents) {
    for (const std::string& extent : extents) Axis(extent);  // refuse early what we cannot launch
    return {std::move(arguments), std::move(extents)};
  }

  // 0–2 for blockIdx, 3–5 for threadIdx
  static int Axis(const std::string& extent) {
    static const std::map<std::string, int> axes = {{"blockIdx.x", 0},  {"blockIdx.y", 1},
                                                    {"blockIdx.z", 2},  {"threadIdx.x", 3},
                                                    {"threadIdx.y", 4}, {"threadIdx.z", 5}};
    auto found = axes.find(extent);
    if (found == axes.end()) {
      TVM_FFI_THROW(RuntimeError) << "OpenCL: no launch parameter " << extent << " here";
    }
    return found->second;
  }
};

struct Kernel {
  cl_kernel handle;
  Signature signature;

  Kernel(cl_program program, const std::string& name, Signature how) : signature(std::move(how)) {
    cl_int status = CL_SUCCESS;
    handle = clCreateKernel(program, name.c_str(), &status);
    Expect(status, "clCreateKernel");
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() { clReleaseKernel(handle); }

  void Launch(ffi::PackedArgs packed) const {
    const auto* values = reinterpret_cast<const TVMFFIAny*>(packed.data());
    const size_t own = signature.arguments.size();
    for (size_t i = 0; i < own; ++i) Bind(static_cast<cl_uint>(i), values[i]);
    std::array<size_t, 6> extent{1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < signature.extents.size(); ++i) {
      extent[Signature::Axis(signature.extents[i])] =
          static_cast<size_t>(values[own + i].v_int64);
    }
    std::array<size_t, 3> global{};
    for (size_t axis = 0; axis < 3; ++axis) global[axis] = extent[axis] * extent[axis + 3];
    Expect(clEnqueueNDRangeKernel(Driver::Instance().Queue(current_device), handle, 3, nullptr,
                                  global.data(), extent.data() + 3, 0, nullptr, nullptr),
           "clEnqueueNDRangeKernel");
  }

 private:
  void Bind(cl_uint index, const TVMFFIAny& value) const {
    const DLDataType type = signature.arguments[index];
    if (type.code == kDLOpaqueHandle) {
      cl_mem buffer = static_cast<cl_mem>(value.v_ptr);
      Expect(clSetKernelArg(handle, index, sizeof(buffer), &buffer), "clSetKernelArg");
    } else if (type.code == kDLFloat && type.bits == 32) {
      const float number = static_cast<float>(value.v_float64);
      Expect(clSetKernelArg(handle, index, sizeof(number), &number), "clSetKernelArg");
    } else if (type.bits == 32) {
      const int32_t number = static_cast<int32_t>(value.v_int64);
      Expect(clSetKernelArg(handle, index, sizeof(number), &number), "clSetKernelArg");
    } else if (type.bits == 64) {  // double and int64 share the eight bytes
      Expect(clSetKernelArg(handle, index, sizeof(value.v_int64), &value.v_int64),
             "clSetKernelArg");
    } else {
      TVM_FFI_THROW(RuntimeError) << "OpenCL: kernel argument of " << int(type.bits) << " bits";
    }
  }
};

// --------------------------------------------------------------------------- compiled module

// The wheel writes a module as fields in little-endian order, texts and lists with a 64-bit
// count in front of them.
class Fields {
 public:
  explicit Fields(const std::string& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  uint64_t Count() { return Number<uint64_t>(); }

  std::string Text() {
    const uint64_t length = Count();
    const char* start = Take(length);
    return std::string(start, length);
  }

  DLDataType Type() {
    DLDataType type;
    type.code = Number<uint8_t>();
    type.bits = Number<uint8_t>();
    type.lanes = Number<uint16_t>();
    return type;
  }

  void Skip(uint64_t bytes) { Take(bytes); }

 private:
  template <typename Plain>
  Plain Number() {
    Plain value;
    std::memcpy(&value, Take(sizeof(value)), sizeof(value));
    return value;
  }

  const char* Take(uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(end_ - at_)) {
      TVM_FFI_THROW(ValueError) << "OpenCL: the module ends in the middle of a field";
    }
    const char* start = at_;
    at_ += bytes;
    return start;
  }

  const char* at_;
  const char* end_;
};

class Program final : public ffi::ModuleObj {
 public:
  explicit Program(std::string bytes) : bytes_(std::move(bytes)) {
    Fields fields(bytes_);
    fields.Text();  // the format's name; the wheel writes sources only
    for (uint64_t left = fields.Count(); left > 0; --left) {
      std::string name = fields.Text();
      fields.Text();  // the name once more, as the kernel's own record has it
      std::vector<DLDataType> arguments(fields.Count());
      for (DLDataType& argument : arguments) argument = fields.Type();
      std::vector<std::string> extents(fields.Count());
      for (std::string& extent : extents) extent = fields.Text();
      fields.Skip(fields.Count() * sizeof(int32_t));  // storage hints, for images only
      signatures_.emplace(std::move(name),
                          Signature::Of(std::move(arguments), std::move(extents)));
    }
    source_ = fields.Text();
  }

  const char* kind() const final { return "opencl"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(bytes_); }
  ffi::String InspectSource(const ffi::String&) const final { return source_; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& wanted) final {
    auto found = signatures_.find(std::string(wanted));
    if (found == signatures_.end()) return std::nullopt;
    auto kernel = std::make_shared<Kernel>(Built(), found->first, found->second);
    ffi::Module keep = ffi::GetRef<ffi::Module>(this);
    return ffi::Function::FromPacked(
        [kernel, keep](ffi::PackedArgs packed, ffi::Any*) { kernel->Launch(packed); });
  }

 private:
  cl_program Built() {
    std::lock_guard<std::mutex> guard(building_);
    if (built_ != nullptr) return built_;
    Driver& driver = Driver::Instance();
    cl_device_id first = driver.Id(0);
    const char* text = source_.data();
    const size_t length = source_.size();
    cl_int status = CL_SUCCESS;
    cl_program fresh = clCreateProgramWithSource(driver.context, 1, &text, &length, &status);
    Expect(status, "clCreateProgramWithSource");
    if (clBuildProgram(fresh, 0, nullptr, "", nullptr, nullptr) != CL_SUCCESS) {
      size_t size = 0;
      clGetProgramBuildInfo(fresh, first, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
      std::string log(size, '\0');
      clGetProgramBuildInfo(fresh, first, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
      clReleaseProgram(fresh);
      TVM_FFI_THROW(RuntimeError) << "OpenCL: the driver refuses the kernels: " << log;
    }
    return built_ = fresh;
  }

  std::string bytes_;
  std::string source_;
  std::map<std::string, Signature> signatures_;
  std::mutex building_;
  cl_program built_ = nullptr;
};

// The two names under which TVM looks for a runtime.
TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def_packed("device_api.opencl",
                  [](ffi::PackedArgs, ffi::Any* answer) {
                    tvm::runtime::DeviceAPI* api = Memory::Instance();
                    *answer = static_cast<void*>(api);
                  })
      .def("ffi.Module.load_from_bytes.opencl", [](const ffi::Bytes& bytes) {
        return ffi::Module(
            ffi::make_object<Program>(std::string(bytes.data(), bytes.size())));
      });
}

}  // namespace seqto_opencl
