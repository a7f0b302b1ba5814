// A TensorBoard event file: records of (time, step, named numbers) that TensorBoard plots. The format is TFRecord
// framing around protobuf messages, few enough to be written by hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "orthant/files/file_handle.h"

namespace orthant {

// Owns `<folder>/events.out.tfevents.<seconds>.<host>.<pid>`, which must not exist; the folder must. Times are seconds
// since 1970. Records are kept in memory up to flush() or 64 KiB; a failure to write is a DataError, and the file then
// ends with the last whole record.
class EventFile {
 public:
  EventFile(const std::filesystem::path& folder, std::string_view hostname, std::int64_t pid, double start_time);
  ~EventFile();  // flushes; a failure is not told
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return file_.path(); }

  // One record; TensorBoard keeps 32-bit numbers.
  void add_scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string_view, double>> values);

  void add_text(std::int64_t step, double wall_time, std::string_view tag, std::string_view text);

  // Hands what is kept to the system; does not wait for the device.
  void flush();

 private:
  void add_record(const std::string& event);

  FileHandle file_;
  std::string kept_;
};

}  // namespace orthant
