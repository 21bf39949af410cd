//! Decodes the counters of the kernel, and encodes the constants of the BPF programs. Pure. The type information of the
//! compiled object gives the layout, which the C header defines.

use super::skeleton::types;
use crate::histogram::{Histogram, Scale};
use crate::recording::{AskedClass, Bios, Class, Process};
use longrun_bpf::{KernelDevice, u64_at};
use longrun_sys::DeviceNumber;
use std::mem::offset_of;

/// How many devices can be traced at once.
pub(super) const MOST_DEVICES: usize =
    (offset_of!(types::trace_config, top) - offset_of!(types::trace_config, device)) / size_of::<u32>();
/// How many processes can be ours.
pub(super) const MOST_OWN: usize =
    (size_of::<types::trace_config>() - offset_of!(types::trace_config, process)) / size_of::<u32>();
/// What a request is for, in the order of the header: read, write, discard, flush, other.
pub(super) const CLASSES: usize = 5;

/// The settings of the BPF programs.
pub(super) struct Settings {
    /// The devices whose requests are counted.
    pub devices: Vec<DeviceNumber>,
    /// The devices of the file systems.
    pub tops: Vec<DeviceNumber>,
    /// Our processes.
    pub own: Vec<u32>,
    /// Bytes of a page.
    pub page_size: usize,
}

/// The number of entries that the map of counts needs.
pub(super) fn places(devices: usize) -> u32 {
    u32::try_from(devices.max(1) * CLASSES * 2).unwrap_or(u32::MAX)
}

/// The index of the counts of a device, class and owner.
pub(super) fn place(device: usize, class: usize, own: bool) -> u32 {
    u32::try_from((device * CLASSES + class) * 2 + usize::from(own)).unwrap_or(u32::MAX)
}

/// The constants of the BPF programs.
pub(super) fn set_constants(constants: &mut [u8], settings: &Settings) {
    use types::trace_config as C;
    let base = offset_of!(types::rodata, config);
    let mut put = |at: usize, number: u32| longrun_bpf::put(constants, base + at, &number.to_ne_bytes());
    let count = |list: usize| u32::try_from(list).unwrap_or(u32::MAX);
    put(offset_of!(C, devices), count(settings.devices.len().min(MOST_DEVICES)));
    put(offset_of!(C, tops), count(settings.tops.len().min(MOST_DEVICES)));
    put(offset_of!(C, own), count(settings.own.len().min(MOST_OWN)));
    put(offset_of!(C, page_shift), settings.page_size.trailing_zeros());
    let kernels = |device: &DeviceNumber| KernelDevice::of(*device).0;
    let mut list = |at: usize, most: usize, numbers: &mut dyn Iterator<Item = u32>| {
        numbers.take(most).enumerate().for_each(|(nth, number)| put(at + nth * size_of::<u32>(), number));
    };
    list(offset_of!(C, device), MOST_DEVICES, &mut settings.devices.iter().map(kernels));
    list(offset_of!(C, top), MOST_DEVICES, &mut settings.tops.iter().map(kernels));
    list(offset_of!(C, process), MOST_OWN, &mut settings.own.iter().copied());
}

/// A record of counters, added up over all processors.
pub(super) struct Sums(Vec<u64>);

impl Sums {
    /// From the records of the processors.
    pub(super) fn of(records: &[Vec<u8>]) -> Self {
        let mut sums = Vec::new();
        for record in records {
            let numbers = record.chunks_exact(size_of::<u64>()).filter_map(|bytes| bytes.try_into().ok());
            for (nth, number) in numbers.map(u64::from_ne_bytes).enumerate() {
                match sums.get_mut(nth) {
                    Some(sum) => *sum = u64::wrapping_add(*sum, number),
                    None => sums.push(number),
                }
            }
        }
        Self(sums)
    }

    fn at(&self, offset: usize) -> u64 {
        self.0.get(offset / size_of::<u64>()).copied().unwrap_or(0)
    }

    fn histogram(&self, scale: Scale, offset: usize) -> Histogram {
        let first = offset / size_of::<u64>();
        Histogram::from_counts(scale, self.0.iter().skip(first).take(scale.buckets()).copied())
    }
}

/// The counts of one device, class and owner.
pub(super) fn class(sums: &Sums) -> Class {
    use types::trace_counts as C;
    let seconds = |offset| sums.at(offset) as f64 / 1e9;
    Class {
        requests: sums.at(offset_of!(C, requests)),
        bytes: sums.at(offset_of!(C, bytes)),
        completed: sums.at(offset_of!(C, completed)),
        errors: sums.at(offset_of!(C, errors)),
        requeued: sums.at(offset_of!(C, requeued)),
        distances: sums.at(offset_of!(C, distances)),
        sequential: sums.at(offset_of!(C, sequential)),
        sequential_any: sums.at(offset_of!(C, sequential_any)),
        latency_seconds: seconds(offset_of!(C, latency_ns)),
        wait_seconds: seconds(offset_of!(C, wait_ns)),
        sizes: sums.histogram(Scale::Bytes, offset_of!(C, size)),
        latency: sums.histogram(Scale::Microseconds, offset_of!(C, latency)),
        wait: sums.histogram(Scale::Microseconds, offset_of!(C, wait)),
        seeks: sums.histogram(Scale::Sectors, offset_of!(C, seek)),
        seeks_any: sums.histogram(Scale::Sectors, offset_of!(C, seek_any)),
        depths: sums.histogram(Scale::Requests, offset_of!(C, depth)),
    }
}

/// What became of bios on one device; and its requests without latency, and those of processes without a place.
pub(super) fn bios(sums: &Sums) -> (Bios, u64, u64) {
    use types::trace_device as D;
    let bios = Bios {
        queued: sums.at(offset_of!(D, bios)),
        splits: sums.at(offset_of!(D, splits)),
        back_merges: sums.at(offset_of!(D, back_merges)),
        front_merges: sums.at(offset_of!(D, front_merges)),
        request_merges: sums.at(offset_of!(D, request_merges)),
    };
    (bios, sums.at(offset_of!(D, untracked)), sums.at(offset_of!(D, nameless)))
}

/// What file systems asked for; `told` says whether the kernel tells where one request ends and the next begins.
pub(super) fn asked(sums: &Sums, told: bool) -> AskedClass {
    use types::trace_asked as A;
    let extra = sums.at(offset_of!(A, extra));
    AskedClass {
        requests: told.then(|| sums.at(offset_of!(A, requests))),
        split: told.then(|| sums.at(offset_of!(A, split))),
        wasted_seeks: told.then_some(extra),
        breaks: extra + sums.at(offset_of!(A, between)),
        file_bytes: sums.at(offset_of!(A, file_bytes)),
        direct_bytes: sums.at(offset_of!(A, direct_bytes)),
        other_bytes: sums.at(offset_of!(A, other_bytes)),
        other_bios: sums.at(offset_of!(A, other_bios)),
    }
}

/// A process.
pub(super) fn process(id: u32, bytes: &[u8], own: &[u32]) -> Option<Process> {
    use types::trace_process as P;
    let at = |offset: usize| u64_at(bytes, offset);
    let name = bytes.get(offset_of!(P, name)..size_of::<P>())?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Process {
        id,
        name: String::from_utf8_lossy(name).into_owned(),
        ours: own.contains(&id),
        reads: at(offset_of!(P, reads))?,
        read_bytes: at(offset_of!(P, read_bytes))?,
        writes: at(offset_of!(P, writes))?,
        written_bytes: at(offset_of!(P, written_bytes))?,
        others: at(offset_of!(P, others))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_the_compiled_object_has_the_buckets_of_the_scales() {
        use types::trace_counts as C;
        let fields = |from: usize, to: usize| (to - from) / size_of::<u64>();
        assert_eq!(fields(offset_of!(C, size), offset_of!(C, seek)), Scale::Bytes.buckets());
        assert_eq!(fields(offset_of!(C, seek), offset_of!(C, seek_any)), Scale::Sectors.buckets());
        assert_eq!(fields(offset_of!(C, depth), offset_of!(C, wait)), Scale::Requests.buckets());
        assert_eq!(fields(offset_of!(C, wait), offset_of!(C, wait_ns)), Scale::Microseconds.buckets());
        assert_eq!(fields(offset_of!(C, latency), offset_of!(C, requeued)), Scale::Microseconds.buckets());
        assert_eq!((MOST_DEVICES, MOST_OWN), (16, 16));
    }

    #[test]
    fn counters_of_processors_are_added_up() {
        let record = |first: u64, last: u64| {
            let mut numbers = vec![0u64; size_of::<types::trace_counts>() / 8];
            numbers[0] = first;
            *numbers.last_mut().unwrap() = last;
            numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>()
        };
        let class = class(&Sums::of(&[record(1, 10), record(2, 20)]));
        assert_eq!((class.requests, class.requeued, class.sizes.total()), (3, 30, 0));
    }

    #[test]
    fn short_records_are_zeroes_and_no_process() {
        assert_eq!(class(&Sums::of(&[])), Class::new());
        assert_eq!(process(1, &[0; 20], &[]), None);
    }
}
