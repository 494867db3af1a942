// Written by convkit; do not edit. Checks a model in Swift against the golden cases beside this file:
// does this machine compute what was verified? Swift 5.7 or newer, and nothing but Foundation.
//
//   let problems = try Golden.selfCheck(folder: golden) { inputs in try myApplication(inputs) }
//
// With Core ML (macOS 13, iOS 16), for the package beside this folder:
//
//   swiftc -parse-as-library -D CONVKIT_SELF_CHECK golden/self_check.swift -o self-check
//   ./self-check --self-check [FOLDER OF THE MODEL]
import Foundation

public struct GoldenError: Error, CustomStringConvertible {
  public let description: String
}

/// A tensor's values row by row, as numbers. `kind` is NumPy's ("f4" for 32-bit floats, and so on),
/// or "bf2" for bfloat16.
public struct GoldenTensor {
  public let kind: String
  public let shape: [Int]
  public let numbers: [Double]

  public init(kind: String, shape: [Int], numbers: [Double]) {
    self.kind = kind
    self.shape = shape
    self.numbers = numbers
  }

  public init(_ values: [Float], shape: [Int]) {
    self.init(kind: "f4", shape: shape, numbers: values.map(Double.init))
  }

  /// Reads a NumPy file. `bfloat16`: its 16-bit whole numbers are the bits of such floats.
  public init(numpy file: URL, bfloat16: Bool = false) throws {
    let name = file.lastPathComponent
    let bytes = [UInt8](try Data(contentsOf: file))
    guard bytes.count > 12, bytes[0] == 0x93, Array(bytes[1..<6]) == Array("NUMPY".utf8) else {
      throw GoldenError(description: "\(name): not a NumPy file")
    }
    let start = bytes[6] == 1 ? 10 : 12
    let size = (8..<start).reversed().reduce(0) { $0 << 8 | Int(bytes[$1]) }
    guard bytes.count >= start + size else { throw GoldenError(description: "\(name): cut off") }
    let header = String(decoding: bytes[start..<start + size], as: UTF8.self)
    let type = try Self.part(of: header, after: "'descr': '", until: "'", name)
    let sizes = try Self.part(of: header, after: "'shape': (", until: ")", name)
    shape = sizes.split(separator: ",").compactMap { Int($0.trimmingCharacters(in: .whitespaces)) }
    let stored = String(type.dropFirst())
    guard !type.hasPrefix(">"), let width = Int(stored.dropFirst()), width > 0 else {
      throw GoldenError(description: "\(name): element type \(type)")
    }
    let count = shape.reduce(1, *)
    guard bytes.count == start + size + count * width else {
      throw GoldenError(description: "\(name): cut off")
    }
    let read = try Self.reader(stored, bfloat16: bfloat16)
    let values = (0..<count).map { read(bytes, start + size + $0 * width) }
    kind = bfloat16 ? "bf2" : stored
    numbers = header.contains("'fortran_order': True") ? Self.byRows(values, shape) : values
  }

  private static func part(
    of header: String, after: String, until: String, _ name: String
  ) throws -> String {
    guard let first = header.range(of: after),
      let last = header.range(of: until, range: first.upperBound..<header.endIndex)
    else { throw GoldenError(description: "\(name): its header has no \(after)") }
    return String(header[first.upperBound..<last.lowerBound])
  }

  private static func bits(_ bytes: [UInt8], _ place: Int, _ width: Int) -> UInt64 {
    (0..<width).reversed().reduce(0) { $0 << 8 | UInt64(bytes[place + $1]) }
  }

  private static func reader(
    _ kind: String, bfloat16: Bool
  ) throws -> (_ bytes: [UInt8], _ place: Int) -> Double {
    switch kind {
    case "f8": return { Double(bitPattern: bits($0, $1, 8)) }
    case "f4": return { Double(Float(bitPattern: UInt32(bits($0, $1, 4)))) }
    case "f2": return { half(Int(bits($0, $1, 2))) }
    case "u2" where bfloat16: return { Double(Float(bitPattern: UInt32(bits($0, $1, 2)) << 16)) }
    case "i8": return { Double(Int64(bitPattern: bits($0, $1, 8))) }
    case "i4": return { Double(Int32(truncatingIfNeeded: bits($0, $1, 4))) }
    case "i2": return { Double(Int16(truncatingIfNeeded: bits($0, $1, 2))) }
    case "i1": return { Double(Int8(truncatingIfNeeded: bits($0, $1, 1))) }
    case "u8": return { Double(bits($0, $1, 8)) }
    case "u4": return { Double(bits($0, $1, 4)) }
    case "u2": return { Double(bits($0, $1, 2)) }
    case "u1", "b1": return { Double(bits($0, $1, 1)) }
    default: throw GoldenError(description: "element type \(kind) cannot be compared")
    }
  }

  // Not every Mac's Swift has Float16.
  private static func half(_ bits: Int) -> Double {
    let exponent = bits >> 10 & 31
    let fraction = Double(bits & 1023)
    var value = exponent == 0 ? fraction * pow(2, -24) : (1024 + fraction) * pow(2, Double(exponent - 25))
    if exponent == 31 { value = fraction == 0 ? .infinity : .nan }
    return bits >> 15 == 0 ? value : -value
  }

  /// Puts values that are stored column by column into the order of rows.
  private static func byRows(_ stored: [Double], _ shape: [Int]) -> [Double] {
    var index = [Int](repeating: 0, count: shape.count)
    return stored.indices.map { _ in
      let from = shape.indices.reversed().reduce(0) { $0 * shape[$1] + index[$1] }
      for axis in shape.indices.reversed() {
        index[axis] += 1
        if index[axis] < shape[axis] { break }
        index[axis] = 0
      }
      return stored[from]
    }
  }
}

public enum Golden {
  struct Output {
    let name: String
    let file: String
    var limits: [(name: String, value: Double)] = []
  }

  struct Case {
    let name: String
    var inputs: [(name: String, file: String)] = []
    var outputs: [Output] = []
  }

  /// Runs the model on every golden case and compares its outputs with the original's.
  ///
  /// Returns what differs, in words: an empty text if the model computes what was verified. `run`
  /// takes the inputs by name and returns the outputs by name; `folder` is `golden`. `bfloat16`
  /// names the tensors of that type. Throws GoldenError if the cases cannot be read.
  public static func selfCheck(
    folder: URL, bfloat16: Set<String> = [],
    run: ([String: GoldenTensor]) throws -> [String: GoldenTensor]
  ) throws -> String {
    var problems: [String] = []
    var compared = 0
    for each in try cases(folder.appendingPathComponent("index.tsv")) {
      do {
        var feeds: [String: GoldenTensor] = [:]
        for (name, file) in each.inputs {
          feeds[name] = try GoldenTensor(
            numpy: folder.appendingPathComponent(file), bfloat16: bfloat16.contains(name))
        }
        let found = try run(feeds)
        for output in each.outputs {
          let expected = try GoldenTensor(
            numpy: folder.appendingPathComponent(output.file),
            bfloat16: bfloat16.contains(output.name))
          compared += 1
          let text = try difference(expected, found[output.name], output.limits)
          if !text.isEmpty { problems.append("case \(each.name), output \(output.name): \(text)") }
        }
      } catch {
        problems.append("case \(each.name): \(error)")
      }
    }
    return compared == 0 && problems.isEmpty
      ? "nothing was compared" : problems.joined(separator: "\n")
  }

  static func cases(_ index: URL) throws -> [Case] {
    guard let text = try? String(contentsOf: index, encoding: .utf8) else {
      throw GoldenError(description: "\(index.path): cannot be read")
    }
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    guard lines.first == "convkit-golden\t1" else {
      throw GoldenError(description: "\(index.path): written by another release of convkit")
    }
    var found: [Case] = []
    for line in lines.dropFirst() where !line.isEmpty && !line.hasPrefix("#") {
      let parts = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      let last = found.count - 1
      switch (parts.first ?? "", parts.count) {
      case ("case", 2):
        found.append(Case(name: parts[1]))
      case ("input", 3) where last >= 0:
        found[last].inputs.append((parts[1], parts[2]))
      case ("output", 3) where last >= 0:
        found[last].outputs.append(Output(name: parts[1], file: parts[2]))
      case ("limit", 3) where last >= 0 && !found[last].outputs.isEmpty && Double(parts[2]) != nil:
        let output = found[last].outputs.count - 1
        found[last].outputs[output].limits.append((parts[1], Double(parts[2])!))
      default:
        throw GoldenError(description: "\(index.path): not understood: \(line)")
      }
    }
    return found
  }

  private static func difference(
    _ expected: GoldenTensor, _ found: GoldenTensor?, _ limits: [(name: String, value: Double)]
  ) throws -> String {
    guard let found = found else { return "the model did not return it" }
    // Core ML narrows types (int64 to int32); a float in place of a whole number is wrong.
    guard isFloat(found.kind) == isFloat(expected.kind) else {
      return "its element type is \(found.kind), not \(expected.kind)"
    }
    guard found.shape == expected.shape else {
      return "its shape is \(found.shape), not \(expected.shape)"
    }
    let (wanted, values) = (expected.numbers, found.numbers)
    guard !wanted.isEmpty, wanted.count == values.count else { return "there is nothing to compare" }
    for (place, (one, other)) in zip(wanted, values).enumerated() {
      if one.isNaN || other.isNaN { return "element \(place) is NaN" }
      if one.isInfinite || other.isInfinite, one != other {
        return "element \(place) is \(other), not \(one)"
      }
    }
    let rtol = limits.first { $0.name == "rtol" }?.value ?? 0
    var problems: [String] = []
    for (name, limit) in limits where name != "rtol" {
      let measured = try figure(name, wanted, values, rtol)
      let largerIsBetter = name == "cosine" || name == "agreement"
      if !(largerIsBetter ? measured >= limit : measured <= limit) {
        problems.append("\(name) \(measured) \(largerIsBetter ? "<" : ">") \(limit)")
      }
    }
    return limits.contains { $0.name != "rtol" }
      ? problems.joined(separator: ", ") : "it has no limit"
  }

  private static func isFloat(_ kind: String) -> Bool {
    kind.hasPrefix("f") || kind == "bf2"  // "b1" is a bool
  }

  /// Every figure that a limit can be set on (docs/verification.md defines them).
  private static func figure(
    _ name: String, _ wanted: [Double], _ found: [Double], _ rtol: Double
  ) throws -> Double {
    var largest = name == "atol" ? -Double.infinity : 0
    var (total, squares, products, own, others) = (0.0, 0.0, 0.0, 0.0, 0.0)
    var equal = 0
    for (one, other) in zip(wanted, found) {
      if one.isInfinite {  // both are the same infinity
        equal += 1
        continue
      }
      var error = abs(other - one)
      if error < Double(Float.leastNormalMagnitude) { error = 0 }
      var share = error
      if name == "max_rel" { share = error == 0 ? 0 : error / abs(one) }
      if name == "atol" { share = error - rtol * abs(one) }
      largest = max(largest, share)
      total += error
      squares += error * error
      products += one * other
      own += one * one
      others += other * other
      equal += error == 0 ? 1 : 0
    }
    let count = Double(wanted.count)
    switch name {
    case "max_abs", "max_rel", "atol": return largest
    case "mean_abs": return total / count
    case "rms": return (squares / count).squareRoot()
    case "nrmse": return squares == 0 ? 0 : (squares / own).squareRoot()
    case "agreement": return Double(equal) / count
    case "cosine":
      if squares == 0 { return 1 }
      return own == 0 || others == 0 ? 0 : products / (own.squareRoot() * others.squareRoot())
    default:
      throw GoldenError(description: "limit \(name) is not known; take the file of the model's own run")
    }
  }
}

#if canImport(CoreML) && CONVKIT_SELF_CHECK
  import CoreML

  @main
  struct SelfCheck {
    static func main() {
      let arguments = CommandLine.arguments.dropFirst()
      guard arguments.first == "--self-check" else {
        print("usage: self-check --self-check [FOLDER OF THE MODEL]")
        exit(2)
      }
      let folder = URL(fileURLWithPath: arguments.dropFirst().first ?? ".")
      var text: String
      do {
        let package = folder.appendingPathComponent("model.mlpackage")
        let model = try MLModel(contentsOf: try MLModel.compileModel(at: package))
        text = try Golden.selfCheck(folder: folder.appendingPathComponent("golden")) {
          try predict(model, $0)
        }
      } catch {
        text = "\(error)"
      }
      print(text.isEmpty ? "self-check: passed" : "\(text)\nself-check: FAILED")
      exit(text.isEmpty ? 0 : 1)
    }

    static func predict(
      _ model: MLModel, _ feeds: [String: GoldenTensor]
    ) throws -> [String: GoldenTensor] {
      var given: [String: Any] = [:]
      for (name, tensor) in feeds {
        let constraint = model.modelDescription.inputDescriptionsByName[name]?.multiArrayConstraint
        guard let type = constraint?.dataType else {
          throw GoldenError(description: "the model has no input \(name)")
        }
        let array = try MLMultiArray(shape: tensor.shape.map { NSNumber(value: $0) }, dataType: type)
        for (place, number) in tensor.numbers.enumerated() { array[place] = NSNumber(value: number) }
        given[name] = array
      }
      let found = try model.prediction(from: MLDictionaryFeatureProvider(dictionary: given))
      var results: [String: GoldenTensor] = [:]
      for name in found.featureNames {
        guard let array = found.featureValue(for: name)?.multiArrayValue else { continue }
        results[name] = GoldenTensor(
          kind: array.dataType == .int32 ? "i4" : "f4",
          shape: array.shape.map(\.intValue),
          numbers: (0..<array.count).map { array[$0].doubleValue })
      }
      return results
    }
  }
#endif
