//! Windows of the week, such as `mon-fri 08:00-18:00`. Pure: the time is an argument, in the time zone of the machine.

use std::fmt;
use std::str::FromStr;

/// What a window looks like, for messages.
pub const WINDOW: &str = "a window such as \"mon-fri 08:00-18:00\", \"sat,sun 22:00-06:00\" or \"daily 00:00-24:00\"";

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES_A_DAY: u16 = 24 * 60;

/// A moment of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// 0 is Monday.
    pub day: u8,
    /// Since midnight.
    pub minute: u16,
}

impl Moment {
    /// This moment, by the machine's clock and zone.
    #[must_use]
    pub fn now() -> Self {
        let now = jiff::Zoned::now();
        let day = u8::try_from(now.weekday().to_monday_zero_offset()).unwrap_or(0);
        let part = |number: i8| u16::try_from(number).unwrap_or(0);
        Self { day, minute: part(now.hour()) * 60 + part(now.minute()) }
    }

    /// The moment so many minutes before this one.
    #[must_use]
    pub fn earlier(self, minutes: u16) -> Self {
        let of_week = u32::from(self.day) * u32::from(MINUTES_A_DAY) + u32::from(self.minute);
        let week = 7 * u32::from(MINUTES_A_DAY);
        let then = (of_week + week - u32::from(minutes) % week) % week;
        let day = then / u32::from(MINUTES_A_DAY);
        Self {
            day: u8::try_from(day).unwrap_or(0),
            minute: u16::try_from(then % u32::from(MINUTES_A_DAY)).unwrap_or(0),
        }
    }
}

/// A weekly window. A window that ends before it begins continues past midnight into the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// One bit for each day on which it begins; bit 0 is Monday.
    days: u8,
    from: u16,
    to: u16,
}

impl Window {
    /// `sat 01:00-05:00`.
    pub const SATURDAY_NIGHT: Self = Self { days: 1 << 5, from: 60, to: 5 * 60 };

    /// Whether `moment` lies in it; its first minute does, its last does not.
    #[must_use]
    pub fn contains(&self, moment: Moment) -> bool {
        let begins = |day: u8| self.days >> day & 1 == 1;
        if self.from < self.to {
            return begins(moment.day) && (self.from..self.to).contains(&moment.minute);
        }
        let yesterday = (moment.day + 6) % 7;
        begins(moment.day) && moment.minute >= self.from || begins(yesterday) && moment.minute < self.to
    }
}

impl FromStr for Window {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim().to_ascii_lowercase();
        let (days, hours) = text.split_once(' ').ok_or(())?;
        let (from, to) = hours.trim().split_once('-').ok_or(())?;
        let (from, to) = (minute_of(from)?, minute_of(to)?);
        // From midnight of the end of a day there is nothing left of that day; and an empty window is a mistake.
        if from == MINUTES_A_DAY || from == to {
            return Err(());
        }
        Ok(Self { days: days_of(days)?, from, to })
    }
}

fn days_of(text: &str) -> Result<u8, ()> {
    let day = |name: &str| DAYS.iter().position(|d| *d == name).ok_or(());
    if text == "daily" {
        return Ok(0x7f);
    }
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        // "fri-mon" runs over the end of the week.
        let length = (last + 7 - first) % 7;
        Ok((0..=length).fold(days, |days, step| days | 1 << ((first + step) % 7)))
    })
}

fn minute_of(text: &str) -> Result<u16, ()> {
    let (hour, minute) = text.trim().split_once(':').ok_or(())?;
    let two_digits = |text: &str| if text.len() <= 2 { text.parse::<u8>().map_err(|_| ()) } else { Err(()) };
    let (hour, minute) = (u16::from(two_digits(hour)?), u16::from(two_digits(minute)?));
    let whole = hour * 60 + minute;
    if minute < 60 && whole <= MINUTES_A_DAY { Ok(whole) } else { Err(()) }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days == 0x7f {
            f.write_str("daily")?;
        } else {
            let begins = |day: &(usize, &&str)| self.days >> day.0 & 1 == 1;
            let names: Vec<&str> = DAYS.iter().enumerate().filter(begins).map(|(_, name)| *name).collect();
            f.write_str(&names.join(","))?;
        }
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, " {}-{}", time(self.from), time(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(day: u8, hour: u16, minute: u16) -> Moment {
        Moment { day, minute: hour * 60 + minute }
    }

    #[test]
    fn a_window_holds_its_days_and_hours_and_may_run_past_midnight() {
        let office: Window = "mon-fri 08:00-18:00".parse().unwrap();
        assert!(office.contains(at(0, 8, 0)) && office.contains(at(4, 17, 59)));
        assert!(!office.contains(at(4, 18, 0)) && !office.contains(at(5, 9, 0)));
        let night: Window = "sun 22:00-06:00".parse().unwrap();
        assert!(night.contains(at(6, 23, 0)) && night.contains(at(0, 5, 59)));
        assert!(!night.contains(at(0, 22, 0)) && !night.contains(at(6, 5, 0)));
        let weekend: Window = "fri-mon 0:00-24:00".parse().unwrap();
        assert!([4, 5, 6, 0].iter().all(|d| weekend.contains(at(*d, 12, 0))) && !weekend.contains(at(1, 12, 0)));
    }

    #[test]
    fn nonsense_is_no_window() {
        for text in [
            "",
            "mon",
            "08:00-18:00",
            "mon 8-18",
            "moo 08:00-18:00",
            "mon 08:00-08:00",
            "mon 25:00-26:00",
            "mon 24:00-01:00",
            "mon 08:60-09:00",
            "mon- 08:00-09:00",
        ] {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_the_same_window(days in 1..0x80u8, from in 0..MINUTES_A_DAY, to in 0..=MINUTES_A_DAY) {
            prop_assume!(from != to);
            let window = Window { days, from, to };
            prop_assert_eq!(window.to_string().parse::<Window>(), Ok(window));
        }
    }
}
