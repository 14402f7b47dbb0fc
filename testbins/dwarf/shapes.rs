//! Functions of Rust with parameters of every kind. Each prints what it was passed.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone, Copy)]
pub struct Point {
    pub x: i32,
    pub y: i64,
}

pub struct Person {
    pub name: String,
    pub age: u8,
    pub home: Option<Box<Point>>,
    pub tags: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Color {
    Red,
    Green = 5,
    Blue,
}

pub enum Shape {
    Empty,
    Circle(u32),
    Square { side: i64, name: &'static str },
}

pub type Call = fn();

fn say(function: &str, items: &[(&str, String)]) {
    let shown: Vec<String> = items.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    println!("{{\"function\": \"{function}\", \"items\": {{{}}}}}", shown.join(", "));
}

macro_rules! line {
    ($function:expr, $($key:expr => $value:expr),*) => {
        say($function, &[$(($key, format!("{:?}", $value))),*])
    };
}

/// Text that is JSON already.
struct Raw(String);
impl fmt::Debug for Raw {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str(&self.0)
    }
}

fn points(list: &[Point]) -> Raw {
    let each: Vec<String> = list.iter().map(|one| format!("{{\"x\": {}, \"y\": {}}}", one.x, one.y)).collect();
    Raw(format!("[{}]", each.join(", ")))
}

#[inline(never)]
pub fn integers(a: i8, b: u8, c: i16, d: u16, e: i32, f: u32) -> i32 {
    line!("shapes::integers", "a" => a, "b" => b, "c" => c, "d" => d, "e" => e, "f" => f, "return" => e);
    e
}

#[inline(never)]
pub fn wide(a: i64, b: u64, c: isize, d: usize, e: bool, f: i64, g: i32) -> bool {
    line!("shapes::wide", "a" => a, "b" => b, "c" => c, "d" => d, "e" => i32::from(e), "f" => f, "g" => g,
          "return" => i32::from(!e));
    !e
}

#[inline(never)]
pub fn texts(part: &str, whole: &String, owned: String, nothing: &str) -> usize {
    line!("shapes::texts", "part" => part, "whole" => whole, "owned" => owned, "nothing" => nothing,
          "return" => part.len());
    part.len()
}

#[inline(never)]
pub fn lists(numbers: &[i32], list: &Vec<u16>, owned: Vec<u8>) -> u8 {
    line!("shapes::lists", "numbers" => numbers, "list" => list, "owned" => owned, "return" => owned[0]);
    owned[0]
}

#[inline(never)]
pub fn structures(point: &Point, person: &Person, value: Point, color: Color) -> i64 {
    line!("shapes::structures", "point.x" => point.x, "point.y" => point.y, "person.name" => person.name,
          "person.age" => person.age, "person.tags" => person.tags, "value.x" => value.x, "value.y" => value.y,
          "color" => match color { Color::Red => "Red", Color::Green => "Green", Color::Blue => "Blue" },
          "return" => point.y + value.y);
    point.y + value.y
}

#[inline(never)]
pub fn mutable(point: &mut Point, boxed: Box<Point>, pair: &(i32, u16)) {
    line!("shapes::mutable", "point.x" => point.x, "boxed.y" => boxed.y, "pair.__0" => pair.0,
          "pair.__1" => pair.1);
    point.x += 1;
}

#[inline(never)]
pub fn shapes(shape: &Shape, maybe: &Option<u32>, home: Option<&u32>) -> u32 {
    let name = match shape { Shape::Empty => "Empty", Shape::Circle(_) => "Circle", Shape::Square { .. } => "Square" };
    line!("shapes::shapes", "shape" => name, "maybe" => if maybe.is_some() { "Some" } else { "None" },
          "home" => if home.is_some() { "Some" } else { "None" }, "return" => maybe.unwrap_or(0) + u32::from(matches!(shape, Shape::Empty)));
    maybe.unwrap_or(0) + u32::from(matches!(shape, Shape::Empty))
}

#[inline(never)]
pub fn owners(rc: Rc<Point>, arc: &Arc<Point>, list: &[Point], held: &Vec<Point>, reals: &Vec<f64>) -> i64 {
    line!("shapes::owners", "rc.x" => rc.x, "arc.y" => arc.y, "list" => points(list), "list[1].y" => list[1].y,
          "held" => points(held), "held[0].x" => held[0].x, "reals" => reals, "return" => arc.y);
    arc.y
}

#[inline(never)]
pub fn forms(result: &Result<u32, String>, home: &Option<Box<Point>>, number: Option<NonZeroU32>, pair: (i32, u16),
             deep: &Option<Option<bool>>, order: std::cmp::Ordering) -> u32 {
    let one = match result { Ok(_) => "Ok", Err(_) => "Err" };
    let place = match order { std::cmp::Ordering::Less => "Less", std::cmp::Ordering::Equal => "Equal", _ => "Greater" };
    line!("shapes::forms", "result" => one, "home" => if home.is_some() { "Some" } else { "None" },
          "number" => if number.is_some() { "Some" } else { "None" }, "deep" => if deep.is_some() { "Some" } else { "None" },
          "order" => place, "pair.__0" => pair.0, "pair.__1" => pair.1, "return" => u32::from(pair.1));
    u32::from(pair.1)
}

#[inline(never)]
pub fn inside(result: &Result<u32, String>, home: &Option<Box<Point>>) -> bool {
    if let (Ok(number), Some(point)) = (result, home) {
        line!("shapes::inside", "result.Ok.__0" => number, "home.Some.__0.x" => point.x, "home.Some.__0.y" => point.y,
              "return" => 1);
    }
    true
}

/// What is printed of an enumeration: JSON, with the names of tuples' fields as debug information has them.
trait Json {
    fn json(&self) -> String;
}
impl Json for u16 {
    fn json(&self) -> String { self.to_string() }
}
impl Json for bool {
    fn json(&self) -> String { self.to_string() }
}
impl Json for Figure {
    fn json(&self) -> String {
        match self {
            Figure::Nothing => "\"Nothing\"".to_string(),
            Figure::Round(radius, filled) => format!("{{\"Round\": {{\"__0\": {radius}, \"__1\": {filled}}}}}"),
            Figure::Flat { side, color } => format!("{{\"Flat\": {{\"side\": {side}, \"color\": \"{color:?}\"}}}}"),
        }
    }
}
impl<T: Json> Json for Option<T> {
    fn json(&self) -> String {
        self.as_ref().map_or("\"None\"".to_string(), |one| format!("{{\"Some\": {{\"__0\": {}}}}}", one.json()))
    }
}
fn all<T: Json>(list: &[T]) -> String {
    format!("[{}]", list.iter().map(Json::json).collect::<Vec<String>>().join(", "))
}

#[derive(Clone, Copy)]
pub enum Figure {
    Nothing,
    Round(u16, bool),
    Flat { side: i64, color: Color },
}

pub struct Drawing {
    pub first: Figure,
    pub few: [Option<u16>; 3],
    pub maybe: Option<Figure>,
    pub flag: Option<bool>,
    pub deep: Option<Option<bool>>,
    pub last: u16,
}

impl Json for Drawing {
    fn json(&self) -> String {
        format!("{{\"first\": {}, \"few\": {}, \"maybe\": {}, \"flag\": {}, \"deep\": {}, \"last\": {}}}", self.first.json(),
                all(&self.few), self.maybe.json(), self.flag.json(), self.deep.json(), self.last)
    }
}

#[inline(never)]
pub fn nested(drawing: &Drawing, list: &Vec<Figure>, some: &[Option<bool>], drawings: &[Drawing]) -> u16 {
    line!("shapes::nested", "drawing" => Raw(drawing.json()), "drawing.first" => Raw(drawing.first.json()),
          "drawing.maybe" => Raw(drawing.maybe.json()), "list" => Raw(all(list)), "some" => Raw(all(some)),
          "drawings" => Raw(all(drawings)), "return" => drawing.last);
    drawing.last
}

// One or two numbers are passed as such, other structures by their address if they are larger than a word.
#[inline(never)]
pub fn by_value(small: Option<u16>, figure: Figure, flag: Option<bool>, empty: (), bytes: [u8; 8], last: u16) -> Option<u16> {
    let shown = format!("{bytes:?}");
    line!("shapes::by_value", "small" => Raw(small.json()), "figure" => Raw(figure.json()), "flag" => Raw(flag.json()),
          "bytes" => Raw(shown), "last" => last, "return" => Raw(small.json()));
    black_box(empty);
    small
}

#[inline(never)]
pub fn wide_values(row: [u32; 3], result: Result<u16, u64>, number: i32, real: Option<f64>, end: u16) -> Figure {
    let made = if real.is_some() { Figure::Round(end, true) } else { Figure::Nothing };
    let result = match result {
        Ok(one) => format!("{{\"Ok\": {{\"__0\": {one}}}}}"),
        Err(one) => format!("{{\"Err\": {{\"__0\": {one}}}}}"),
    };
    line!("shapes::wide_values", "row" => row, "result" => Raw(result), "number" => number,
          "real" => if real.is_some() { "Some" } else { "None" }, "end" => end, "return" => Raw(made.json()));
    made
}

impl Person {
    #[inline(never)]
    pub fn birthday(&mut self, years: u8) -> u8 {
        self.age += years;
        line!("shapes::Person::birthday", "self.name" => self.name, "years" => years, "return" => self.age);
        self.age
    }
}

// Through pointers, so that nobody changes how they are called.
fn main() {
    black_box(integers as fn(i8, u8, i16, u16, i32, u32) -> i32)(-128, 255, -32768, 65535, -5, 4294967295);
    black_box(wide as fn(i64, u64, isize, usize, bool, i64, i32) -> bool)(i64::MIN, u64::MAX, -3, 4, true, -6, -7);
    let person = Person {
        name: "Anna".to_string(),
        age: 40,
        home: Some(Box::new(Point { x: 1, y: 2 })),
        tags: vec![7, 65535],
    };
    black_box(texts as fn(&str, &String, String, &str) -> usize)(
        &"partial"[1..4], &"whole".to_string(), "owned ".repeat(30), "");
    black_box(lists as fn(&[i32], &Vec<u16>, Vec<u8>) -> u8)(&[1, -2, 3][1..], &person.tags, vec![9, 8]);
    let mut point = Point { x: -1, y: 1 << 40 };
    black_box(structures as fn(&Point, &Person, Point, Color) -> i64)(
        &point, &person, Point { x: -3, y: -4 }, Color::Green);
    black_box(structures as fn(&Point, &Person, Point, Color) -> i64)(&point, &person, point, Color::Blue);
    black_box(mutable as fn(&mut Point, Box<Point>, &(i32, u16)))(
        &mut point, Box::new(Point { x: 1, y: -9 }), &(-5, 6));
    for shape in [Shape::Empty, Shape::Circle(7), Shape::Square { side: -8, name: "square" }] {
        black_box(shapes as fn(&Shape, &Option<u32>, Option<&u32>) -> u32)(&shape, &Some(4), None);
    }
    black_box(shapes as fn(&Shape, &Option<u32>, Option<&u32>) -> u32)(&Shape::Empty, &None, Some(&5));
    let points = [Point { x: 1, y: -2 }, Point { x: -3, y: 4 }];
    black_box(owners as fn(Rc<Point>, &Arc<Point>, &[Point], &Vec<Point>, &Vec<f64>) -> i64)(
        Rc::new(points[0]), &Arc::new(points[1]), &points, &points.to_vec(), &vec![1.5, -2.5]);
    let own = |x| Some(Box::new(Point { x, y: 5 }));
    let all = black_box(forms as fn(&Result<u32, String>, &Option<Box<Point>>, Option<NonZeroU32>, (i32, u16),
                                    &Option<Option<bool>>, std::cmp::Ordering) -> u32);
    all(&Ok(1), &own(2), NonZeroU32::new(3), (-4, 5), &None, std::cmp::Ordering::Less);
    all(&Err("no".to_string()), &None, None, (6, 7), &Some(None), std::cmp::Ordering::Equal);
    all(&Err(String::new()), &None, None, (8, 9), &Some(Some(true)), std::cmp::Ordering::Greater);
    black_box(inside as fn(&Result<u32, String>, &Option<Box<Point>>) -> bool)(&Ok(12), &own(-13));
    let flat = Figure::Flat { side: -9, color: Color::Green };
    let drawing = |first, few, maybe, flag, deep| Drawing { first, few, maybe, flag, deep, last: 65535 };
    let both = [
        drawing(Figure::Round(7, true), [Some(0), None, Some(65535)], Some(flat), Some(false), Some(None)),
        drawing(Figure::Nothing, [None; 3], None, None, None),
    ];
    let nested = black_box(nested as fn(&Drawing, &Vec<Figure>, &[Option<bool>], &[Drawing]) -> u16);
    nested(&both[0], &vec![flat, Figure::Nothing, Figure::Round(0, false)], &[Some(true), None], &both);
    nested(&both[1], &vec![], &[], &both[1..]);
    let by_value = black_box(by_value as fn(Option<u16>, Figure, Option<bool>, (), [u8; 8], u16) -> Option<u16>);
    by_value(Some(77), flat, Some(true), (), [1, 2, 3, 4, 5, 6, 7, 255], 5);
    by_value(None, Figure::Round(3, false), None, (), [0; 8], 6);
    let wide_values = black_box(wide_values as fn([u32; 3], Result<u16, u64>, i32, Option<f64>, u16) -> Figure);
    wide_values([1, 2, u32::MAX], Ok(12), -1, Some(1.5), 13);
    wide_values([0; 3], Err(u64::MAX), -2, None, 14);
    let mut person = person;
    black_box(Person::birthday as fn(&mut Person, u8) -> u8)(&mut person, 2);
    black_box((person.home.map_or(0, |home| home.x), Color::Red));
}
